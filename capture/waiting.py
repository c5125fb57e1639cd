"""Whom a new slot waits for. It needs a moment at which every transaction that wrote before has ended, in any database.

On a standby it waits for its primary, which alone can write down which transactions run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
import structlog
from psycopg.rows import tuple_row

from schemas.identifiers import PipelineName, slot_name

ASK_THE_PRIMARY = (
    "Run `select pg_log_standby_snapshot();` at the primary; it does so by itself after some time of writes."
)
_LOOKS_BETWEEN_REPORTS = 10

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Writers:
    """Open transactions that have written: sessions by their process, and prepared transactions by their name."""

    pids: list[int]
    prepared: list[str]


def open_writers(session: psycopg.Connection[Any]) -> Writers:
    """Of all databases. Locks are shown to everybody, the transactions of other roles' sessions are not."""
    with session.cursor(row_factory=tuple_row) as cursor:
        pids = cursor.execute(
            """
            select distinct pid from pg_locks
             where locktype = 'transactionid' and mode = 'ExclusiveLock' and granted
               and pid is not null and pid <> pg_backend_pid()
             order by pid
            """
        ).fetchall()
        prepared = cursor.execute("select gid from pg_prepared_xacts order by prepared").fetchall()
    return Writers([row[0] for row in pids], [row[0] for row in prepared])


def snapshot_waits(session: psycopg.Connection[Any], pipeline: PipelineName) -> Writers | None:
    """The writers that a snapshot of this pipeline waits for now; None where none is waited for.

    Its slot is there from the beginning of the wait, and shows no position before the end of it."""
    pattern = f"^{slot_name(pipeline)}_copy_[0-9a-f]+$"
    with session.cursor(row_factory=tuple_row) as cursor:
        waiting = cursor.execute(
            "select from pg_replication_slots where slot_name ~ %s and confirmed_flush_lsn is null", [pattern]
        ).fetchone()
    return open_writers(session) if waiting is not None else None


def waiting_reporter(session: psycopg.Connection[Any]) -> Callable[[], None]:
    """To be called about once a second while a slot is waited for; writes a line now and then."""
    looks = 0

    def report() -> None:
        nonlocal looks
        if looks % _LOOKS_BETWEEN_REPORTS == 0:
            _report(session)
        looks += 1

    return report


def _report(session: psycopg.Connection[Any]) -> None:
    with session.cursor(row_factory=tuple_row) as cursor:
        standby = cursor.execute("select pg_is_in_recovery()").fetchone()
    if standby == (True,):
        log.info("slot waits for the primary of this standby", solution=ASK_THE_PRIMARY)
        return
    writers = open_writers(session)
    log.info("slot waits for open transactions", pids=writers.pids, prepared=writers.prepared)
