"""Kafka Connect (standalone) as a process of its own, with Debezium's JDBC sink and Apicurio's Avro converter."""

from __future__ import annotations

import os
import signal
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from console.local_stack.cache import made_once
from console.local_stack.environment import cache_dir
from console.local_stack.jars import jars
from console.local_stack.java import find_java
from console.local_stack.kafka import LocalKafka
from console.local_stack.processes import ServerCommand, ServerProcess, free_port

Properties = Mapping[str, str]

_LOGGING = """
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c %m%n
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
"""


def avro_converter(registry: str) -> dict[str, str]:
    """Of keys and values alike. `registry` is Apicurio's address, which this converter asks by an API of its own."""
    own = registry.replace("ccompat/v7", "registry/v2")
    settings = {
        "converter": "io.apicurio.registry.utils.converter.AvroConverter",
        "converter.apicurio.registry.url": own,
        "converter.apicurio.registry.as-confluent": "true",
        "converter.apicurio.registry.use-id": "contentId",
    }
    return {f"{side}.{name}": value for side in ("key", "value") for name, value in settings.items()}


@contextmanager
def connect(kafka: LocalKafka, *connectors: Properties) -> Iterator[ServerProcess]:
    """Runs the connectors until the end of the block."""
    process = ServerProcess("connect", None)
    try:
        folder = process.directory
        worker = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "listeners": f"http://127.0.0.1:{free_port()}",
            "offset.storage.file.filename": str(folder / "offsets"),
            "plugin.path": ",".join(str(plugin) for plugin in _plugins()),
            "plugin.discovery": "only_scan",  # the converter has no manifest
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        }
        files = [_written(folder / f"{number}.properties", each) for number, each in enumerate([worker, *connectors])]
        (folder / "log4j2.properties").write_text(_LOGGING)
        log = folder / "connect.log"
        process.start(
            ServerCommand(
                argv=[
                    *(str(find_java().executable), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx384m"),
                    f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
                    *("-cp", os.pathsep.join(str(jar) for jar in jars("kafka-connect"))),
                    *("org.apache.kafka.connect.cli.ConnectStandalone", *files),
                ],
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
                log=log,
                end_signal=signal.SIGKILL,
                end_seconds=10.0,
            )
        )
        try:
            yield process
        except BaseException:
            print(f"--- connect\n{log.read_text()[-8000:]}")  # noqa: T201 -- shown by pytest when a test fails
            raise
    finally:
        process.close()


def _written(file: Path, properties: Properties) -> str:
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return str(file)


def _plugins() -> list[Path]:
    """A folder for each archive."""
    folders = []
    for archive in jars("connect-plugins"):
        folder = cache_dir() / "connect" / archive.name.removesuffix(".tar.gz")
        with made_once(folder) as unfinished:
            if unfinished is not None:
                with tarfile.open(archive) as files:
                    # The converter brings a part of Connect that is older than the worker's own.
                    members = [member for member in files if not member.name.startswith("connect-")]
                    files.extractall(unfinished / "plugin", members, filter="data")
        folders.append(folder)
    return folders
