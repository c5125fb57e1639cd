"""A real Kafka broker (KRaft, one node) on a free port of 127.0.0.1, ready when it lists its topics.

In: a folder if the data is to stay, and the ports of proxies before it. Out: bootstrap servers. Promised: nothing of a
broker without a folder is left behind, even after `kill -9` of this process; a restart keeps port, cluster id and data;
the next owner of a kept folder gets its port again if it is still free.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import signal
import subprocess
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from console.local_stack.cache import made_once
from console.local_stack.environment import cache_dir
from console.local_stack.errors import LocalStackError, ServerDidNotStart
from console.local_stack.jars import jars
from console.local_stack.java import find_java
from console.local_stack.processes import (
    ServerCommand,
    ServerProcess,
    free_port,
    is_free,
    last_lines,
    listens,
    remember_ports,
    remembered_ports,
)

_HEAP = "-Xmx512m"  # a record of 64 MiB is held several times; without such records it stays below 200 MB
_MAX_MESSAGE_BYTES = 68 * 1024**2  # 64 MiB and room for the batch around it
_START_SECONDS = 120.0
_STOP_SECONDS = 60.0
_END_SECONDS = 15.0
_PORT_ATTEMPTS = 5
_TEMPLATE_CLUSTER_ID = "penstock-template-----"  # 22 characters, the length of every cluster id

log = structlog.get_logger(__name__)


class LocalKafka:
    """One Kafka broker. `with` starts it and ends it; in between it may be stopped, killed and started again."""

    def __init__(self, data_dir: Path | None = None, behind: Mapping[int, int] | None = None) -> None:
        """`behind`: further ports at which it listens, and for each the port at which its clients are told to find it,
        that of a proxy."""
        self._data_dir = data_dir.absolute() if data_dir is not None else None
        self._behind = dict(behind or {})
        self._process: ServerProcess | None = None
        self._ports: tuple[int, int] | None = None
        self._ever_started = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def port(self) -> int:
        """The port on 127.0.0.1; the same for the whole life of this object."""
        if self._ports is None:
            raise LocalStackError("Kafka has no port yet.", solution="Start it first.")
        return self._ports[0]

    @property
    def bootstrap_servers(self) -> str:
        """What a client is given to find the broker."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the broker."""
        if self._process is None or self._process.pid is None:
            raise LocalStackError("Kafka does not run.", solution="Start it first.")
        return self._process.pid

    @property
    def directory(self) -> Path:
        """Where it lives: `data`, `server.properties`, `server.log`, and `console.log` for what the JVM says."""
        if self._process is None:
            raise LocalStackError("Kafka has no folder yet.", solution="Start it first.")
        return self._process.directory

    def start(self) -> None:
        """Start, or start again. Returns when the broker has listed its topics."""
        if self._process is not None and self._process.running():
            return
        began = time.monotonic()
        if self._process is None:
            self._process = ServerProcess("kafka", self._data_dir)
        try:
            cluster_id = self._prepared(self._process.directory)
            self._start_on_ports(self._process, cluster_id)
        except BaseException:
            # The first start leaves nothing behind; a failed restart leaves the data for the next try.
            self.kill() if self._ever_started else self.close()
            raise
        self._ever_started = True
        log.info("kafka started", port=self.port, seconds=round(time.monotonic() - began, 2))

    def stop(self) -> None:
        """Stop cleanly and wait until the process is gone. The data stays for the next `start`."""
        if self._process is not None:
            self._process.stop(signal.SIGTERM, _STOP_SECONDS)

    def kill(self) -> None:
        """SIGKILL, as the kernel does when memory is short."""
        if self._process is not None:
            self._process.stop(signal.SIGKILL, _STOP_SECONDS)

    def close(self) -> None:
        """End the broker; remove its data unless `data_dir` was given. May be repeated."""
        if self._process is not None:
            process, self._process = self._process, None
            process.close()

    def _start_on_ports(self, process: ServerProcess, cluster_id: str) -> None:
        directory = process.directory
        remembered = remembered_ports(directory)
        for _ in range(1 if self._ever_started else _PORT_ATTEMPTS):
            ports = self._ports
            if ports is None or not self._ever_started:
                port, controller_port = remembered or _two_free_ports()
                self._ports = ports = port, controller_port
                remembered = []
            _write_configuration(directory, self._settings(directory, *ports))
            process.start(self._command(directory))
            if self._becomes_ready(process, cluster_id):
                remember_ports(directory, *ports)
                return
            if all(is_free(port) for port in ports):
                break  # the ports were not the reason
            log.info("port taken by another process", ports=ports)
        raise ServerDidNotStart(
            f"Kafka did not start: {last_lines(directory / 'server.log')} {last_lines(directory / 'console.log')}",
            solution="Do what its last lines ask for; if they name a lock, another broker uses the folder.",
        )

    def _prepared(self, directory: Path) -> str:
        """Makes the folder ready; the cluster id that it has."""
        return _prepare(directory)

    def _settings(self, directory: Path, port: int, controller_port: int) -> dict[str, str]:
        """What its `server.properties` says."""
        return _settings(directory, port, controller_port, self._behind)

    def _command(self, directory: Path) -> ServerCommand:
        throw_away = self._data_dir is None
        return ServerCommand(
            argv=[
                *_java(_HEAP, *self._class_archive()),
                f"-Dlog4j2.configurationFile={directory / 'log4j2.properties'}",
                "kafka.Kafka",
                str(directory / "server.properties"),
            ],
            env=_environment(),
            log=directory / "console.log",
            end_signal=signal.SIGKILL if throw_away else signal.SIGTERM,
            end_seconds=_END_SECONDS,
        )

    def _class_archive(self) -> list[str]:
        """The JVM options that spare it loading its classes one by one, which is half of the start."""
        archive = _class_archive()
        return [f"-XX:SharedArchiveFile={archive}"] if archive is not None else []

    def _becomes_ready(self, process: ServerProcess, cluster_id: str) -> bool:
        until = time.monotonic() + _START_SECONDS
        answer = "nothing"
        while process.running():
            # Knocked at first: a client that is refused waits longer and longer before it tries again.
            if listens(self.port):
                try:
                    found = asked_cluster_id(self.bootstrap_servers)
                except KafkaException as error:
                    answer = str(error)
                else:
                    # Another broker may have taken the port in the meantime; ours is about to notice.
                    if found == cluster_id:
                        return True
                    answer = f"cluster {found}"
            if time.monotonic() > until:
                raise ServerDidNotStart(
                    f"Kafka on port {self.port} does not answer after {_START_SECONDS:g} s: {answer}",
                    solution=f"Look at {process.directory / 'server.log'}.",
                )
            time.sleep(0.02)
        return False


def _two_free_ports() -> list[int]:
    port = free_port()
    return [port, free_port(taken=[port])]


def asked_cluster_id(bootstrap_servers: str) -> str | None:
    """The cluster id as the broker tells it; KafkaException where none answers."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0, "reconnect.backoff.ms": 20})
    return admin.list_topics(timeout=5).cluster_id


def _java(*options: str) -> list[str]:
    classpath = os.pathsep.join(str(jar) for jar in jars("kafka-broker"))
    # Started often and used briefly: a small, quick JVM rather than a fast one.
    return [str(find_java().executable), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *options, "-cp", classpath]


def _environment() -> dict[str, str]:
    return {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}


def _prepare(directory: Path) -> str:
    """Fill a new folder from the template, with a cluster id of its own; take an old one. Return the cluster id."""
    data = directory / "data"
    if not (data / "meta.properties").exists():
        directory.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(data, ignore_errors=True)
        # Copied under another name first: a folder called `data` is always whole.
        unfinished = directory / "data.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(_template(), unfinished)
        meta = unfinished / "meta.properties"
        cluster_id = urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        meta.write_text(meta.read_text().replace(_TEMPLATE_CLUSTER_ID, cluster_id))
        unfinished.rename(data)
    lines = (data / "meta.properties").read_text().splitlines()
    return next(line.removeprefix("cluster.id=") for line in lines if line.startswith("cluster.id="))


class _Rehearsal(LocalKafka):
    """A broker that writes down, when it stops, which classes it has loaded."""

    def __init__(self, archive: Path) -> None:
        super().__init__()
        self._archive = archive

    def _class_archive(self) -> list[str]:
        return [f"-XX:ArchiveClassesAtExit={self._archive}"]


def _class_archive() -> Path | None:
    """The classes of a broker, laid out for this Java; made once. None where this Java cannot do it."""
    java = find_java()
    key = hashlib.sha256(f"{java.home} {java.build}".encode()).hexdigest()[:16]
    target = cache_dir() / "kafka" / f"{_version()}-classes-{key}.jsa"
    with made_once(target) as unfinished:
        if unfinished is not None:
            log.info("kafka class archive making", java=str(java.home))
            with _Rehearsal(unfinished) as broker:
                broker.stop()
            unfinished.touch()  # empty: this Java has no archive of its own on which ours could be built
    return target if target.stat().st_size else None


def _version() -> str:
    return next(jar.stem for jar in jars("kafka-broker") if jar.name.startswith("kafka-server-4"))


def _template() -> Path:
    """A formatted storage folder; made once, because formatting takes a JVM of its own."""
    target = cache_dir() / "kafka" / f"{_version()}-template"
    with made_once(target) as unfinished:
        if unfinished is not None:
            scratch = unfinished.parent / "format"
            scratch.mkdir()
            _write_configuration(scratch, _settings(scratch, 1, 2, {}))
            done = subprocess.run(
                [
                    *_java("-Xmx128m"),
                    *("kafka.tools.StorageTool", "format", "--cluster-id", _TEMPLATE_CLUSTER_ID),
                    *("--config", str(scratch / "server.properties")),
                ],
                env=_environment(),
                cwd=scratch,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode != 0:
                raise ServerDidNotStart(
                    f"Kafka's storage could not be formatted: {' | '.join(done.stderr.strip().splitlines()[-8:])}",
                    solution="Do what its last lines ask for.",
                )
            (scratch / "data").rename(unfinished)
    return target


def _settings(directory: Path, port: int, controller_port: int, behind: Mapping[int, int]) -> dict[str, str]:
    names = {f"BEHIND{listened}": (listened, told) for listened, told in behind.items()} | {"PLAINTEXT": (port, port)}
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": ",".join(
            [
                *(f"{name}://127.0.0.1:{listened}" for name, (listened, _) in names.items()),
                f"CONTROLLER://127.0.0.1:{controller_port}",
            ]
        ),
        "advertised.listeners": ",".join(f"{name}://127.0.0.1:{told}" for name, (_, told) in names.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in (*names, "CONTROLLER")),
        "log.dirs": str(directory / "data"),
        "auto.create.topics.enable": "false",
        "message.max.bytes": str(_MAX_MESSAGE_BYTES),
        "replica.fetch.max.bytes": str(_MAX_MESSAGE_BYTES),
        "socket.request.max.bytes": str(256 * 1024**2),  # for who raises `kafka.max_record`
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        # One process is broker and controller: a killed broker may register again when its old session is over.
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "500",
        # The default is 128 MB of heap, taken at the start.
        "log.cleaner.dedupe.buffer.size": str(4 * 1024**2),
    }


def _write_configuration(directory: Path, settings: Mapping[str, str]) -> None:
    lines = [f"{name}={value}" for name, value in settings.items()]
    (directory / "server.properties").write_text("\n".join(lines) + "\n")
    (directory / "log4j2.properties").write_text(f"""\
status=error
appender.file.type=RollingFile
appender.file.name=file
appender.file.fileName={directory / "server.log"}
appender.file.filePattern={directory / "server.log"}.%i
appender.file.policies.type=Policies
appender.file.policies.size.type=SizeBasedTriggeringPolicy
appender.file.policies.size.size=10MB
appender.file.strategy.type=DefaultRolloverStrategy
appender.file.strategy.max=2
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d %p %c: %m%n
rootLogger.level=warn
rootLogger.appenderRef.file.ref=file
""")
