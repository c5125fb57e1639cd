"""One Postgres and one broker for a whole run, the meter that watches them, and child processes that measure limits."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self, cast

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from benchmarks.processes import BROKER, CLIENT, POSTGRES, Meter
from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres

TRANSPORTS = ("tcp", "unix")
SETTINGS = {
    "max_replication_slots": "60",
    "max_wal_senders": "60",
    "max_wal_size": "16GB",  # no checkpoint in the middle of a case
    "checkpoint_timeout": "1h",
    "autovacuum": "off",
    "wal_sender_timeout": "10min",  # bare readers send no status
    "synchronous_commit": "off",
}


@dataclass(frozen=True)
class Servers:
    """What every case works with."""

    postgres: LocalPostgres
    kafka: LocalKafka
    meter: Meter
    folder: Path

    def dsn(self, database: str, transport: str = "tcp") -> str:
        dsn = self.postgres.dsn(database)
        return make_conninfo(dsn, host=str(self.postgres.directory)) if transport == "unix" else dsn

    def create_database(self, name: str) -> psycopg.Connection:
        """A session in a new database."""
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as admin:
            admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        return psycopg.connect(self.dsn(name), autocommit=True)

    def limits(self, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Children that do these jobs side by side, begun together when all are ready."""
        with ExitStack() as stack:
            children = [stack.enter_context(_Child(self.meter, job)) for job in jobs]
            for child in children:
                child.expect_ready()
            for child in children:
                child.say("go")
            return [child.answer() for child in children]


@contextmanager
def running_servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        postgres = stack.enter_context(LocalPostgres(settings=SETTINGS))
        kafka = stack.enter_context(LocalKafka())
        meter = stack.enter_context(Meter())
        meter.watch(postgres.pid, POSTGRES)
        meter.watch(kafka.pid, BROKER)
        yield Servers(postgres, kafka, meter, folder)


class _Child:
    """One process of child.py. `with` ends it."""

    def __init__(self, meter: Meter, job: dict[str, Any]) -> None:
        self._meter = meter
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.child"],
            cwd=Path(__file__).parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._in, self._out = cast("IO[str]", self._process.stdin), cast("IO[str]", self._process.stdout)
        meter.watch(self._process.pid, CLIENT)
        self.say(json.dumps(job))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._meter.forget(self._process.pid)
        self._in.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._out.close()

    def say(self, line: str) -> None:
        self._in.write(line + "\n")

    def expect_ready(self) -> None:
        said = self._out.readline().strip()
        if said != "ready":
            raise RuntimeError(f"a limit could not be measured: {said or 'its process has ended'}")

    def answer(self) -> dict[str, Any]:
        answered = self._out.readline()
        if not answered:
            raise RuntimeError("a limit could not be measured: its process has ended")
        found: dict[str, Any] = json.loads(answered)
        self._meter.forget(self._process.pid)
        return found
