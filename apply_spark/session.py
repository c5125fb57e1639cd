"""The SparkSession, with its connectors, tuned for small batches on few cores.

Settings of Spark may hold secrets, such as the key of an object store. PySpark would write each of them into the
command line of the JVM, which every user of the host can read. So the JVM gets them in a file that its user alone can
read, and that is gone when it has started.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from socketserver import BaseServer
from types import SimpleNamespace

import structlog
from pyspark import SparkContext
from pyspark.sql import SparkSession

from apply_spark.config import ApplyConfig
from apply_spark.destinations.spark_jvm import java_class, jvm

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",  # Postgres tells "Id" from "id"
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",  # re-planning costs more than it gives on small batches
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.driver.maxResultSize": "0",  # a batch is bounded by the interval budget
    "spark.task.maxDirectResultSize": "128m",  # a larger result makes a detour by the block manager
    "spark.speculation": "false",  # a destination must not be written twice at once
    "spark.kafka.consumer.cache.timeout": "10s",
    "spark.kafka.consumer.fetchedData.cache.timeout": "10s",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    # Rows of Arrow up to this size are literals of the plan: 60,000 rows for Iceberg took a third more CPU that way.
    "spark.sql.execution.arrow.localRelationThreshold": "1MB",
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # else it is told on which line each column was made
    "spark.sql.ui.explainMode": "simple",  # each plan is described, though nobody looks
    "spark.log.level": "ERROR",
}
_JARS = "spark.jars"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_COLLECTOR = "-XX:+UseParallelGC"
"""Made for throughput: a batch is short-lived arrays, and nobody waits for a millisecond."""
_COMPILER = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=20000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
"""Ten times what Java has: what is done for each record reaches them within a batch, what is done for each plan hardly.
With Java's own numbers the compiler had 47 % of the JVM's CPU from second 14 to 24 of a copy, with these 37 %."""
_A_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
_OPTIONS_OF_JAVA = ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")
"""Where an environment has options for the JVM."""
_PYTHON = "spark.pyspark.python"
_CLASSES = {
    "PythonUtils": "org.apache.spark.api.python.PythonUtils",
    "PythonSQLUtils": "org.apache.spark.sql.api.python.PythonSQLUtils",
    "PythonErrorUtils": "org.apache.spark.api.python.PythonErrorUtils",
    "functions": "org.apache.spark.sql.functions",
    "org.apache.spark.sql.functions": "org.apache.spark.sql.functions",
}
"""Those that PySpark asks for with every query or exception, by what it calls them."""
_SUBMIT = "PYSPARK_SUBMIT_ARGS"

log = structlog.get_logger(__name__)


def spark_session(config: ApplyConfig) -> SparkSession:
    """Starts the JVM, or returns the session that this process already has.

    Executors of a cluster get the jars from the driver, and none of the driver's Java options."""
    os.environ["PYSPARK_PYTHON"] = config.tuning.spark.get(_PYTHON, sys.executable)
    if config.tuning.master.startswith("local"):  # executors elsewhere have to reach the driver
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if config.runtime.java_home is not None:
        os.environ["JAVA_HOME"] = config.runtime.java_home
    settings = {
        "spark.app.name": f"penstock {config.pipeline} {config.name}",
        "spark.master": config.tuning.master,
        **session_settings(config),
    }
    with _handed_over(settings):
        SparkContext.getSystemProperty("java.version")  # which starts the JVM, where this process has none
    builder = SparkSession.Builder()
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    _know_classes(session)
    say_no_traceback(session.sparkContext._accumulatorServer)  # noqa: SLF001 -- PySpark has no other name for it
    return session


def say_no_traceback(server: BaseServer) -> None:
    """PySpark's server for counters prints one where the Java process ends, which is told as the reason of apply."""

    def failed(_request: object, _client: object) -> None:
        error = sys.exception()
        if not isinstance(error, EOFError | ConnectionError):
            log.error("counters of Spark failed", error=type(error).__name__)

    server.handle_error = failed  # type: ignore[method-assign, assignment]  # PySpark makes it, and asks nobody


def _know_classes(session: SparkSession) -> None:
    """PySpark calls them by short names, for which the JVM looks in every jar, and for each of the packages that it
    knows: that took a tenth of its CPU where queries are small. Of an exception it asks a dozen times what it is, each
    time package by package."""
    java = jvm(session)
    for called, name in _CLASSES.items():
        setattr(java, called, java_class(java, name))
    java.py4j = SimpleNamespace(reflection=SimpleNamespace(TypeUtil=java_class(java, "py4j.reflection.TypeUtil")))


@contextmanager
def _handed_over(settings: Mapping[str, str]) -> Iterator[None]:
    """A JVM that is started in the block reads the settings, after those of spark-defaults.conf."""
    before = os.environ.get(_SUBMIT)
    with tempfile.NamedTemporaryFile("w", prefix="penstock-spark-", suffix=".properties", encoding="ascii") as file:
        file.writelines(f"{escaped(name)}={escaped(value)}\n" for name, value in settings.items())
        file.flush()
        given = f"--load-spark-defaults --properties-file {shlex.quote(file.name)}"
        os.environ[_SUBMIT] = f"{given} {before or 'pyspark-shell'}"
        try:
            yield
        finally:
            del os.environ[_SUBMIT]
            if before is not None:
                os.environ[_SUBMIT] = before


def escaped(text: str) -> str:
    """As Java reads a file of properties, whatever it holds: each character by its number in UTF-16."""
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True))


def session_settings(config: ApplyConfig) -> dict[str, str]:
    """What a user sets goes before what the destination does, and that before our own; jars and the driver's Java
    options are added to ours."""
    runtime, chosen = config.runtime, config.tuning.spark
    further = [settings[_JARS] for settings in (runtime.settings, chosen) if settings.get(_JARS)]
    return {
        **_SETTINGS,
        "spark.driver.memory": config.tuning.driver_memory,
        **runtime.settings,
        **chosen,
        _JARS: ",".join([*runtime.jars, *further]),
        _JAVA_OPTIONS: _java_options(f"{runtime.java_options} {chosen.get(_JAVA_OPTIONS, '')}".strip()),
    }


def _java_options(given: str) -> str:
    """Ours before those that are given, which win. A JVM that is told of two collectors does not start."""
    told = " ".join([given, *[os.environ.get(name, "") for name in _OPTIONS_OF_JAVA]])
    collector = [] if _A_COLLECTOR.search(told) else [_COLLECTOR]
    return " ".join([*collector, *_COMPILER, given]).strip()
