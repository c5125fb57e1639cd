"""Kafka Connect (standalone) as a process of its own, with connectors of Debezium and Apicurio's Avro converter."""

from __future__ import annotations

import os
import signal
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from zipfile import ZipFile

from console.local_stack.cache import made_once
from console.local_stack.environment import cache_dir
from console.local_stack.jars import jars
from console.local_stack.java import find_java
from console.local_stack.kafka import LocalKafka
from console.local_stack.processes import ServerCommand, ServerProcess, free_port
from tests.support.eventually import eventually
from tests.support.registry import asked

Properties = Mapping[str, str]
SINKS, SOURCES = "connect-plugins", "connect-source-plugins"
"""Groups of jars: the connectors of either kind, and the converter."""

_CONVERTER = "io.apicurio.registry.utils.converter.AvroConverter"
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
        "converter": _CONVERTER,
        "converter.apicurio.registry.url": own,
        "converter.apicurio.registry.as-confluent": "true",
        "converter.apicurio.registry.use-id": "contentId",
        "converter.apicurio.registry.headers.enabled": "false",  # or the id would be there
        "converter.apicurio.registry.auto-register": "true",
    }
    return {f"{side}.{name}": value for side in ("key", "value") for name, value in settings.items()}


@dataclass(frozen=True)
class Worker:
    """One that runs."""

    process: ServerProcess
    address: str

    def running(self) -> bool:
        return self.process.running()

    def stop(self, connector: str) -> None:
        """It forgets how far it was."""
        self._ask("PUT", f"{connector}/stop")
        eventually(lambda: self._ask("DELETE", f"{connector}/offsets"), what="the end of its tasks")

    def begin(self, connector: str) -> None:
        """Anew, after it was stopped."""
        self._ask("PUT", f"{connector}/resume")

    def _ask(self, method: str, path: str) -> bool:
        status, _ = asked(f"{self.address}/connectors/{path}", method)
        return status in {HTTPStatus.OK, HTTPStatus.ACCEPTED, HTTPStatus.NO_CONTENT}


@contextmanager
def connect(kafka: LocalKafka, *connectors: Properties, plugins: str = SINKS) -> Iterator[Worker]:
    """Runs the connectors until the end of the block."""
    process = ServerProcess("connect", None)
    try:
        folder = process.directory
        address = f"http://127.0.0.1:{free_port()}"
        worker = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "listeners": address,
            "offset.storage.file.filename": str(folder / "offsets"),
            "offset.flush.interval.ms": "500",  # by which a source lets its slot go on
            "plugin.path": ",".join(str(plugin) for plugin in _plugins(plugins)),
            "plugin.discovery": "service_load",  # manifests are read, and not every class scanned
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
            yield Worker(process, address)
        except BaseException:
            print(f"--- connect\n{log.read_text()[-8000:]}")  # noqa: T201 -- shown by pytest when a test fails
            raise
    finally:
        process.close()


def _written(file: Path, properties: Properties) -> str:
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return str(file)


def _plugins(group: str) -> list[Path]:
    """A folder for each archive."""
    folders = []
    for archive in jars(group):
        folder = cache_dir() / "connect-plugins" / archive.name.removesuffix(".tar.gz")
        with made_once(folder) as unfinished:
            if unfinished is not None:
                with tarfile.open(archive) as files:
                    # The converter brings a part of Connect that is older than the worker's own.
                    members = [member for member in files if not member.name.startswith("connect-")]
                    files.extractall(unfinished / "plugin", members, filter="data")
                if archive.name.startswith("apicurio-"):  # which says nowhere what it has
                    with ZipFile(unfinished / "plugin" / "manifest.jar", "w") as manifest:
                        manifest.writestr("META-INF/services/org.apache.kafka.connect.storage.Converter", _CONVERTER)
        folders.append(folder)
    return folders
