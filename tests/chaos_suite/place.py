"""The servers of a run, a proxy on each link between them and the stages, small disks, and the configuration."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from console.config import Config, load
from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from console.local_stack.processes import free_port
from tests.chaos_suite.clocks import Clock, made_library
from tests.support.proxy import Proxy

NAME = "chaos"
WAL_SENDER_SECONDS = 5
_SILENCE_SECONDS = 6
"""After which a client of Kafka gives a connection up; a minute unless it is told otherwise."""
_KEPT = "kept"
_BROKER_DISK, _STORE_DISK = "4g", "16m"
"""Of memory, as far as they are used."""


class SmallDisk:
    """A file system of its own that can be full; without the right to mount one, a folder that cannot."""

    def __init__(self, folder: Path, size: str) -> None:
        self.folder = folder
        self._size = size
        folder.mkdir()
        folder.chmod(0o755)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0755", "penstock-chaos", str(folder)],
            capture_output=True,
            check=False,
            text=True,
        )
        self.why_not = done.stderr.strip() if done.returncode else None

    def fill(self) -> None:
        """It becomes as small as what it holds."""
        while not self._resized(str(shutil.disk_usage(self.folder).used)):
            pass  # more was written since

    def free(self) -> None:
        if self.why_not is None:
            assert self._resized(self._size)

    def _resized(self, size: str) -> bool:
        command = ["mount", "-o", f"remount,size={size}", str(self.folder)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def close(self) -> None:
        if self.why_not is None:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


@dataclass(frozen=True)
class Place:
    """Everything that can be broken from outside."""

    folder: Path
    file: Path
    source: LocalPostgres
    mirror: LocalPostgres
    kafka: LocalKafka
    links: dict[str, Proxy]
    broker_disk: SmallDisk
    store_disk: SmallDisk
    clocks: dict[str, Clock]
    """Of the source, and of capture with all that it starts."""

    @property
    def config(self) -> Config:
        """As the suite itself reaches the servers: past the proxies."""
        return load(self.file)

    @property
    def lake_path(self) -> Path:
        return self.folder / "lake.duckdb"

    def keep(self) -> None:
        """The folder, with the logs of all processes, when the servers are gone."""
        (self.folder / _KEPT).touch()

    def source_session(self) -> psycopg.Connection:
        return psycopg.connect(self.source.dsn(NAME), autocommit=True, connect_timeout=5)

    def mirror_session(self) -> psycopg.Connection:
        return psycopg.connect(self.mirror.dsn(NAME), autocommit=True, connect_timeout=5)

    def capture_environment(self) -> dict[str, str]:
        """Through the proxies, with a clock that can be wrong."""
        return {
            "PENSTOCK_SOURCE__DSN": make_conninfo(self.source.dsn(NAME), port=self.links["capture-postgres"].port),
            "PENSTOCK_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{self.links['capture-kafka'].port}",
            **self.clocks["capture"].environment,
        }

    def apply_environment(self) -> dict[str, str]:
        """Through the proxies."""
        return {
            "PENSTOCK_DESTINATIONS__MIRROR__DSN": make_conninfo(
                self.mirror.dsn(NAME), port=self.links["apply-mirror"].port
            ),
            "PENSTOCK_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{self.links['apply-kafka'].port}",
        }


@contextmanager
def made_place() -> Iterator[Place]:
    """Nothing of it is left behind, but the folder of a run that failed."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="penstock-chaos-"))
        folder.chmod(0o755)
        broker_disk = SmallDisk(folder / "broker", _BROKER_DISK)
        stack.callback(broker_disk.close)
        store_disk = SmallDisk(folder / "store", _STORE_DISK)
        stack.callback(store_disk.close)
        library = made_library(folder)
        clocks = {name: Clock(library, folder / f"clock-of-{name}") for name in ("postgres", "capture")}
        settings = {"wal_sender_timeout": f"{WAL_SENDER_SECONDS}s"}
        source = stack.enter_context(LocalPostgres(settings=settings, environment=clocks["postgres"].environment))
        mirror = stack.enter_context(LocalPostgres())
        behind = {name: free_port() for name in ("capture-kafka", "apply-kafka")}
        links = {name: stack.enter_context(Proxy(port)) for name, port in behind.items()}
        links["capture-postgres"] = stack.enter_context(Proxy(source.port))
        links["apply-mirror"] = stack.enter_context(Proxy(mirror.port))
        told = {port: links[name].port for name, port in behind.items()}
        kafka = stack.enter_context(LocalKafka(broker_disk.folder / "kafka", told))
        for server in (source, mirror):
            with psycopg.connect(server.dsn(), autocommit=True) as admin:
                admin.execute(f"create database {NAME}")
        file = folder / "penstock.toml"
        file.write_text(_toml(folder, store_disk.folder, source, mirror, kafka))
        yield Place(folder, file, source, mirror, kafka, links, broker_disk, store_disk, clocks)
    if not (folder / _KEPT).exists():
        shutil.rmtree(folder, ignore_errors=True)


def _toml(folder: Path, store: Path, source: LocalPostgres, mirror: LocalPostgres, kafka: LocalKafka) -> str:
    silence = f'"{_SILENCE_SECONDS * 1000}"'
    return f"""
[pipeline]
name = "{NAME}"
[source]
dsn = "{source.dsn(NAME)}"
publication = "{NAME}"
patience = "5s"
[kafka]
bootstrap_servers = "{kafka.bootstrap_servers}"
patience = "15s"
client = {{ "socket.timeout.ms" = {silence}, "request.timeout.ms" = {silence} }}
[capture]
publication_interval = "500ms"
idle_interval = "500ms"
checkpoint_interval = "200ms"
copy_range_size = "128KiB"
copy_max_rate = "1MB"
[state]
path = "{store / "state.sqlite"}"
[apply]
driver_memory = "1g"
retry_first = "1s"
retry_most = "5s"
[destinations.lake]
type = "duckdb"
path = "{folder / "lake.duckdb"}"
[destinations.mirror]
type = "postgres"
dsn = "{mirror.dsn(NAME)}"
patience = "5s"
"""
