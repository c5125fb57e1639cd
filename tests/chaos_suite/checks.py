"""What must be true: during a round no transfer is seen in halves; after it both destinations equal the source."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress

import duckdb
import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from console.demo.proof import prove
from console.waiting import Held, wait_until_there
from schemas.errors import PenstockError
from schemas.identifiers import DestinationName, TableName
from schemas.lsn import Lsn
from stores.kafka_log import KafkaLog
from tests.chaos_suite.place import NAME, Place
from tests.chaos_suite.threads import Threads
from tests.chaos_suite.workload import TABLES, TOTALS, is_whole

DESTINATIONS = ("lake", "mirror")
CATCH_UP_SECONDS = 180.0
_SLOT_SECONDS = 30.0
_LOOK_SECONDS = 0.2


class Watchers(Threads):
    """Readers of both destinations, until the end of the block. `halves`: moments that never were at the source."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._place = place
        self.looks: Counter[str] = Counter()
        self.halves: list[str] = []
        self._threads = [
            threading.Thread(target=self._watch, args=(name,), name=f"watch-{name}") for name in DESTINATIONS
        ]

    def _watch(self, name: str) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            with suppress(duckdb.IOException, duckdb.ConnectionException, psycopg.OperationalError):
                try:
                    totals = self._lake() if name == "lake" else self._mirror()
                except (duckdb.CatalogException, psycopg.ProgrammingError) as error:
                    self.halves.append(f"{name} lacked a table: {error}")
                    continue
                self.looks[name] += 1
                if not is_whole(*totals):
                    self.halves.append(f"{name} showed {totals}")

    def _lake(self) -> tuple[int, int, int | None]:
        with duckdb.connect(str(self._place.lake_path), read_only=True) as lake:
            row = lake.execute(TOTALS).fetchone()
        assert row is not None
        return row[0], row[1], row[2]

    def _mirror(self) -> tuple[int, int, int | None]:
        with self._place.mirror_session() as mirror:
            row = mirror.execute(TOTALS).fetchone()
        assert row is not None
        return row[0], row[1], row[2]


def caught_up(place: Place) -> tuple[float, list[str]]:
    """Seconds until both destinations and the slot are at the end, and what is not."""
    began = time.monotonic()
    failures = []
    with place.source_session() as source:
        target = _lsn(source, "select pg_current_wal_lsn()::text")
        for name in DESTINATIONS:
            left = CATCH_UP_SECONDS - (time.monotonic() - began)
            try:
                _wait(place, name, target, max(left, 1.0))
            except PenstockError as error:
                failures.append(f"{name} did not catch up: {error.reason}")
        seconds = time.monotonic() - began
        until = time.monotonic() + _SLOT_SECONDS
        confirmed = f"select confirmed_flush_lsn::text from pg_replication_slots where slot_name = 'penstock_{NAME}'"
        while not failures and (at := _lsn(source, confirmed)) < target:
            if time.monotonic() > until:
                failures.append(f"the slot is at {at} and not at {target}")
            time.sleep(_LOOK_SECONDS)
    return seconds, failures


def _wait(place: Place, name: str, target: Lsn, seconds: float) -> None:
    """A broker that has just come back may not answer at first."""
    until = time.monotonic() + seconds
    tables = [TableName("public", table) for table in TABLES]
    while True:
        try:
            with KafkaLog(place.config.kafka) as log:
                wait_until_there(
                    log,
                    place.config.pipeline,
                    DestinationName(name),
                    target,
                    max(0.0, until - time.monotonic()),
                    held=Held.RAISED,
                    tables=tables,
                )
        except PenstockError:
            if time.monotonic() >= until:
                raise
            time.sleep(_LOOK_SECONDS)
        else:
            return


def differences(place: Place) -> list[str]:
    """Nobody writes meanwhile."""
    names = [TableName("public", table) for table in TABLES]
    with psycopg.connect(place.source.dsn(NAME), row_factory=dict_row) as source:
        proofs = prove(source, place.lake_path, names)
    found = [f"lake: {proof}" for proof in proofs if not proof.equal]
    with place.source_session() as ours, place.mirror_session() as theirs:
        for table in TABLES:
            columns = _columns(ours, table)
            if _columns(theirs, table) != columns:
                found.append(f"mirror: {table} has other columns")
            elif lost := _rows(ours, table, columns) - _rows(theirs, table, columns):
                found.append(f"mirror: {table} lacks {lost.total()} rows")
            elif more := _rows(theirs, table, columns) - _rows(ours, table, columns):
                found.append(f"mirror: {table} has {more.total()} rows too many")
    return found


def _columns(session: psycopg.Connection, table: str) -> list[str]:
    rows = session.execute(
        "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 and not attisdropped "
        "order by attname",
        (f"public.{table}",),
    ).fetchall()
    return [str(name) for (name,) in rows]


def _rows(session: psycopg.Connection, table: str, columns: list[str]) -> Counter[tuple[str | None, ...]]:
    texts = [sql.SQL("{}::text").format(sql.Identifier(column)) for column in columns]
    query = sql.SQL("select {} from {}").format(sql.SQL(", ").join(texts), sql.Identifier("public", table))
    return Counter(session.execute(query).fetchall())


def _lsn(session: psycopg.Connection, query: str) -> Lsn:
    row = session.execute(query.encode()).fetchone()
    assert row is not None
    return Lsn.parse(row[0])
