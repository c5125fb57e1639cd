"""What Spark needs to start on this machine: a Java, the connectors, and an archive of its classes.

To load its classes one by one is half of Spark's start. A Java that has seen a session writes them down once, laid out
as they are in memory; every later session maps that file: 3 s instead of 6 until it is there, and half of the CPU.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pyspark
import structlog

from apply_spark.config import ApplyConfig, DestinationConfig, SparkRuntime
from apply_spark.destination import Connector
from apply_spark.session import spark_session
from console.local_stack.cache import made_once
from console.local_stack.environment import cache_dir
from console.local_stack.jars import jars
from console.local_stack.java import find_java, java_home_for_spark
from schemas.connections import KafkaConfig
from schemas.identifiers import DestinationName, PipelineName

_REHEARSAL_SECONDS = 300
_KEPT = 4
"""Archives of other environments on this machine that stay; each has 150 MB."""

log = structlog.get_logger(__name__)


def spark_runtime(connector: Connector | None = None) -> SparkRuntime:
    """With everything that has to be fetched or made, which is done once for each machine: also what a destination
    needs that Spark itself writes to."""
    try:
        archive = _class_archive()
    except (OSError, subprocess.SubprocessError) as error:  # such as a cache that may only be read
        log.warning("spark starts without an archive of its classes", error=type(error).__name__)
        archive = None
    return _runtime(_options("SharedArchiveFile", archive) if archive is not None else "", connector or Connector())


def _options(use: str, archive: Path) -> str:
    """In quotes, as Spark's launcher takes them: a home folder may have a space in its name."""
    return f'"-XX:{use}={archive}" -Xlog:disable -Xlog:all=error:stderr'


def _runtime(java_options: str, connector: Connector) -> SparkRuntime:
    return SparkRuntime(
        jars=tuple(str(jar) for group in ("spark-kafka-avro", *connector.jars) for jar in jars(group)),
        java_home=str(java_home_for_spark()),
        java_options=java_options,
        settings=dict(connector.settings),
    )


def _class_archive() -> Path | None:
    """None where this Java cannot make one. Spark's folder is part of its name: an archive belongs to a class path."""
    java, spark = find_java(), Path(pyspark.__file__).parent
    belongs_to = f"{java.home} {java.build} {spark} {pyspark.__version__} {(spark / 'jars').stat().st_mtime_ns}"
    key = hashlib.sha256(belongs_to.encode()).hexdigest()[:16]
    target = cache_dir() / "spark" / f"classes-{key}.jsa"
    with made_once(target) as unfinished:
        if unfinished is not None:
            log.info("spark class archive making", java=str(java.home))
            # The JVM writes it after its Python has ended; its output ends with it, and that is waited for. Whether it
            # succeeds is not asked: without an archive Spark starts as it always did.
            subprocess.run(
                [sys.executable, "-m", __name__, str(unfinished)],
                capture_output=True,
                timeout=_REHEARSAL_SECONDS,
                check=False,
            )
            unfinished.touch()
            for old in sorted(target.parent.glob("classes-*.jsa"), key=lambda each: each.stat().st_mtime)[:-_KEPT]:
                old.unlink(missing_ok=True)
    return target if target.stat().st_size else None


def _rehearse(archive: Path) -> None:
    """A session that does a little of all that apply does, and writes down its classes when it ends."""
    config = ApplyConfig(
        pipeline=PipelineName("rehearsal"),
        name=DestinationName("rehearsal"),
        destination=DestinationConfig(type="memory"),
        kafka=KafkaConfig(bootstrap_servers="none:1"),
        runtime=_runtime(_options("ArchiveClassesAtExit", archive), Connector()),
    )
    spark = spark_session(config)
    rows = spark.createDataFrame([(1, "a", b"b")], "id long, name string, value binary").filter("id > 0")
    rows.groupBy("id").agg({"name": "max"}).toArrow()
    stream = spark.readStream.format("rate").load().writeStream.foreachBatch(lambda batch, _: batch.show())
    stream.trigger(once=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    _rehearse(Path(sys.argv[1]))
