"""Tables under a load that never ends, by which loss, repetition and halves can be told: a table with a key, one
without, and two between which money moves, in one transaction each time, so that its sum never changes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.support.meanwhile import meanwhile
from tests.support.pipeline import Pipeline

TABLES = ("keyed", "keyless", "giro", "savings")
ACCOUNTS = 5
TOTAL = 2 * ACCOUNTS * 1000
_PAUSE_SECONDS = 0.02


class Bank:
    """The source of one pipeline, whose tables it makes."""

    def __init__(self, pipeline: Pipeline, rows: int) -> None:
        self.pipeline = pipeline
        self._rows = rows
        self._turn = threading.Lock()
        self._altered = False
        pipeline.sql(
            "create table keyed (id bigint primary key, a varchar(40), n bigint)",
            "create table keyless (a varchar(40), n bigint)",
            "alter table keyless replica identity full",
            f"insert into keyed select i, md5(i::text), i from generate_series(1, {rows}) i",
            f"insert into keyless select 'twice', i / 2 from generate_series(1, {rows // 4}) i",
        )
        for table in ("giro", "savings"):
            pipeline.sql(
                f"create table {table} (id int primary key, amount bigint)",
                f"insert into {table} select i, 1000 from generate_series(1, {ACCOUNTS}) i",
            )
        pipeline.publish(*TABLES)

    @contextmanager
    def open(self) -> Iterator[Bank]:
        """Business goes on for as long as the block lasts."""
        with (
            psycopg.connect(self.pipeline.config().source.dsn.get_secret_value(), autocommit=True) as session,
            meanwhile(lambda step: self._work(session, step), pause=_PAUSE_SECONDS),
        ):
            yield self

    @contextmanager
    def still(self) -> Iterator[None]:
        """Nothing changes inside the block."""
        with self._turn:
            yield

    def alter(self) -> None:
        """Another shape of a table, that of before the next time."""
        change = "drop column extra" if self._altered else "add column extra int default 7"
        with self._turn:
            self.pipeline.sql(f"alter table keyed {change}")
        self._altered = not self._altered

    def _work(self, session: psycopg.Connection, step: int) -> None:
        amount, account, moved = step % 90 + 1, step % ACCOUNTS + 1, step * 7 % self._rows + 1
        with self._turn, session.transaction():
            session.execute("update giro set amount = amount - %s where id = %s", [amount, account])
            session.execute("insert into keyless values ('once', %s)", [step % 100])
            session.execute("update savings set amount = amount + %s where id = %s", [amount, ACCOUNTS + 1 - account])
            session.execute(
                "insert into keyed values (%s, %s, 0) on conflict (id) do update set a = excluded.a, n = keyed.n + 1",
                [step % self._rows + 1, f"step {step}"],
            )
            session.execute("delete from keyed where id = %s", [-moved])
            session.execute("update keyed set id = -id where id = %s", [moved])
            session.execute("delete from keyless where n = %s", [(step + 50) % 100])
