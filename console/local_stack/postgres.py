"""A real Postgres of any supported version, on a free port of 127.0.0.1, ready when it answers.

In: a major version, settings, a folder if the data is to stay. Out: a DSN. Promised: nothing of a server without a
folder is left behind, even after `kill -9` of this process; a restart keeps port, password and data; the next owner of
a kept folder gets its port again if it is still free.
"""

from __future__ import annotations

import ctypes
import enum
import io
import os
import secrets
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
import structlog
from psycopg.conninfo import make_conninfo

from console.local_stack.cache import made_once
from console.local_stack.errors import LocalStackError, ServerDidNotStart
from console.local_stack.jars import postgres_jar
from console.local_stack.processes import (
    ServerCommand,
    ServerProcess,
    free_port,
    is_free,
    last_lines,
    remember_ports,
    remembered_ports,
)
from console.local_stack.unprivileged import closed_parent, give_away, readable_cache, server_user

SETTINGS = {"wal_level": "logical", "max_replication_slots": "20", "max_wal_senders": "20"}
# Safe against every crash but the machine's own, after which throw-away data is not missed.
_THROW_AWAY_SETTINGS = {"fsync": "off", "full_page_writes": "off"}
_START_SECONDS = 60.0
_STOP_SECONDS = 60.0
_END_SECONDS = 15.0
_PORT_ATTEMPTS = 5
_SOCKET_PATH_LIMIT = 100  # the kernel's is 108 on Linux and 104 on macOS, with the final zero
_SHARED_MEMORY_LINE = 6  # of postmaster.pid: key and id of the segment
_IPC_RMID = 0
_ENVIRONMENT = {"LC_ALL": "C.UTF-8", "TZ": "UTC", "PATH": os.defpath}

log = structlog.get_logger(__name__)


class StopMode(enum.Enum):
    """How Postgres is told to stop."""

    FAST = signal.SIGINT
    """Clients are cut off, a checkpoint is written."""
    IMMEDIATE = signal.SIGQUIT
    """At once, without a checkpoint; the next start recovers."""


class LocalPostgres:
    """One Postgres server. `with` starts it and ends it; in between it may be stopped, killed and started again."""

    def __init__(
        self,
        version: int = 17,
        data_dir: Path | None = None,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.version = version
        self._data_dir = data_dir.absolute() if data_dir is not None else None
        throw_away = _THROW_AWAY_SETTINGS if data_dir is None else {}
        self._settings = {**SETTINGS, **throw_away, **(settings or {})}
        self._environment = {**_ENVIRONMENT, **(environment or {})}
        self._user = server_user()
        self._process: ServerProcess | None = None
        self._port: int | None = None
        self._ever_started = False
        self._password = ""

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
        if self._port is None:
            raise LocalStackError("Postgres has no port yet.", solution="Start it first.")
        return self._port

    @property
    def pid(self) -> int:
        """The process id of the postmaster."""
        if self._process is None or self._process.pid is None:
            raise LocalStackError("Postgres does not run.", solution="Start it first.")
        return self._process.pid

    @property
    def directory(self) -> Path:
        """Where it lives: `data`, `server.log`, and the unix socket."""
        if self._process is None:
            raise LocalStackError("Postgres has no folder yet.", solution="Start it first.")
        return self._process.directory

    def dsn(self, database: str = "postgres") -> str:
        """How the superuser connects, over TCP."""
        return make_conninfo(
            host="127.0.0.1", port=self.port, user="postgres", password=self._password, dbname=database
        )

    def start(self) -> None:
        """Start, or start again. Returns when a connection has answered `select 1`."""
        if self._process is not None and self._process.running():
            return
        began = time.monotonic()
        if self._process is None:
            self._process = ServerProcess("postgres", self._data_dir)
        try:
            self._prepare(self._process.directory)
            self._start_on_a_port(self._process)
        except BaseException:
            # The first start leaves nothing behind; a failed restart leaves the data for the next try.
            self.kill() if self._ever_started else self.close()
            raise
        self._ever_started = True
        log.info("postgres started", version=self.version, port=self.port, seconds=round(time.monotonic() - began, 2))

    def stop(self, mode: StopMode = StopMode.FAST) -> None:
        """Stop and wait until no process is left. The data stays for the next `start`."""
        if self._process is not None:
            self._process.stop(mode.value, _STOP_SECONDS)

    def kill(self) -> None:
        """SIGKILL to the postmaster and every backend, as the kernel does when memory is short."""
        if self._process is not None:
            self._process.stop(signal.SIGKILL, _STOP_SECONDS)
            _remove_shared_memory(self._process.directory)

    def close(self) -> None:
        """End the server; remove its data unless `data_dir` was given. May be repeated."""
        if self._process is not None:
            process, self._process = self._process, None
            process.close()

    def _prepare(self, directory: Path) -> None:
        """Fill a new folder from the template; take an old one as it is."""
        if not (directory / "data" / "PG_VERSION").exists():
            directory.mkdir(parents=True, exist_ok=True)
            # Copied under another name first: a folder called `data` is always whole.
            unfinished = directory / "data.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            template = _template(self.version, self._user)
            shutil.copyfile(template / "password", directory / "password")
            shutil.copytree(template / "data", unfinished)
            unfinished.rename(directory / "data")
        self._password = (directory / "password").read_text()
        give_away(directory, self._user)

    def _start_on_a_port(self, process: ServerProcess) -> None:
        remembered = remembered_ports(process.directory)
        for _ in range(1 if self._ever_started else _PORT_ATTEMPTS):
            if not self._ever_started:
                self._port = remembered.pop() if remembered else free_port()
            process.start(self._command(process.directory, self.port))
            if self._becomes_ready(process):
                remember_ports(process.directory, self.port)
                return
            if is_free(self.port):
                break  # the port was not the reason
            log.info("port taken by another process", port=self.port)
        raise ServerDidNotStart(
            f"Postgres {self.version} did not start: {last_lines(process.directory / 'server.log')}",
            solution="Do what its last lines ask for; if they name the data folder, it belongs to another server.",
        )

    def _command(self, directory: Path, port: int) -> ServerCommand:
        # A socket path that is too long would stop the server; TCP serves everybody anyway.
        socket_directory = str(directory) if len(str(directory)) < _SOCKET_PATH_LIMIT - len("/.s.PGSQL.65535") else ""
        settings = {
            **self._settings,
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": socket_directory,
        }
        throw_away = self._data_dir is None
        return ServerCommand(
            argv=[
                str(_binaries(self.version) / "bin" / "postgres"),
                *("-D", str(directory / "data")),
                *(part for name, value in settings.items() for part in ("-c", f"{name}={value}")),
            ],
            env=self._environment,
            log=directory / "server.log",
            end_signal=StopMode.IMMEDIATE.value if throw_away else StopMode.FAST.value,
            end_seconds=_END_SECONDS,
            user=self._user,
        )

    def _becomes_ready(self, process: ServerProcess) -> bool:
        until = time.monotonic() + _START_SECONDS
        answer = "nothing"
        while process.running():
            try:
                with psycopg.connect(self.dsn(), connect_timeout=2, autocommit=True) as connection:
                    row = connection.execute("select current_setting('data_directory')").fetchone()
            except psycopg.OperationalError as error:
                answer = str(error)
            else:
                # Another Postgres may have taken the port in the meantime; ours is about to notice.
                if row is not None and Path(row[0]) == process.directory / "data":
                    return True
                answer = "another server"
            if time.monotonic() > until:
                raise ServerDidNotStart(
                    f"Postgres {self.version} on port {self.port} does not answer after {_START_SECONDS:g} s: {answer}",
                    solution=f"Look at {process.directory / 'server.log'}; a long recovery may need more time.",
                )
            time.sleep(0.02)
        return False


def _remove_shared_memory(directory: Path) -> None:
    """Remove the System V segment that a killed postmaster leaves in the kernel; the next start would find it gone."""
    try:
        lines = (directory / "data" / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return
    if len(lines) > _SHARED_MEMORY_LINE:
        _, segment = lines[_SHARED_MEMORY_LINE].split()
        ctypes.CDLL(None).shmctl(int(segment), _IPC_RMID, None)


def _binaries(version: int) -> Path:
    """The unpacked binaries of a version; unpacked once."""
    jar = postgres_jar(version)
    target = readable_cache() / "postgres" / jar.stem
    with made_once(target) as unfinished:
        if unfinished is not None:
            log.info("postgres unpacking", version=version)
            with zipfile.ZipFile(jar) as archive:
                (name,) = (name for name in archive.namelist() if name.endswith(".txz"))
                content = io.BytesIO(archive.read(name))
            with tarfile.open(fileobj=content, mode="r:xz") as tree:
                tree.extractall(unfinished, filter="data")
            for folder, _, _ in os.walk(unfinished):
                Path(folder).chmod(0o755)  # whatever our umask says, the server's user has to go in
            # The staging folder is closed; what is renamed out of it must be open to the server's user.
            closed = closed_parent(target.parent)
            if server_user() is not None and closed is not None:
                raise LocalStackError(
                    f"Postgres cannot run from {target}: only root may pass through {closed}.",
                    solution=f"Run `chmod o+x {closed}`, or set XDG_CACHE_HOME to a folder open to all.",
                )
    return target


def _template(version: int, user: tuple[int, int] | None) -> Path:
    """A data folder fresh from initdb, and its superuser's password; made once for each version."""
    binaries = _binaries(version)
    target = readable_cache() / "postgres" / f"{binaries.name}-template"
    with made_once(target) as unfinished:
        if unfinished is not None:
            # In a folder of its own: the staging folder is closed to the server's user.
            with tempfile.TemporaryDirectory(prefix="penstock-initdb-") as name:
                scratch = Path(name)
                (scratch / "password").write_text(secrets.token_urlsafe(24))
                give_away(scratch, user)
                _initdb(binaries, scratch, user)
                unfinished.mkdir(mode=0o700)
                shutil.copytree(scratch / "data", unfinished / "data")
                shutil.copyfile(scratch / "password", unfinished / "password")
                (unfinished / "password").chmod(0o600)
    return target


def _initdb(binaries: Path, scratch: Path, user: tuple[int, int] | None) -> None:
    uid, gid = user if user is not None else (None, None)
    done = subprocess.run(
        [
            *(binaries / "bin" / "initdb", "-D", scratch / "data", "--username=postgres", "--no-sync"),
            *("--encoding=UTF8", "--locale=C.UTF-8"),
            # A password, because whoever may connect as superuser may run programs as the server's user.
            *("--auth=scram-sha-256", "--pwfile", scratch / "password"),
        ],
        env=_ENVIRONMENT,
        cwd=scratch,
        capture_output=True,
        text=True,
        check=False,
        user=uid,
        group=gid,
        extra_groups=None if user is None else [],
    )
    if done.returncode != 0:
        raise ServerDidNotStart(
            f"initdb failed: {' | '.join(done.stderr.strip().splitlines()[-8:])}",
            solution="Do what its last lines ask for.",
        )
