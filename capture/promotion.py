"""Notices that the standby we stream from became a primary, under the same connection (Postgres 16 and later).

Its WAL goes on as another timeline, and all of it is what we received: the source that we remember moves to that
timeline with it. Otherwise the next start would find a server that left our timeline before our last checkpoint, which
is what a standby looks like that was promoted without our transactions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

import psycopg
import structlog

from schemas.identifiers import SlotName

_LOOK_SECONDS = 1.0
_TIMELINE_DIGITS = 8  # hexadecimal, at the beginning of the name of every file of WAL

log = structlog.get_logger(__name__)


class PromotionWatch:
    """Looks once a second while `with` lasts, and a last time at its end. `promoted` gets the timeline, once.

    A server that cannot be asked, or that does not hold our walsender, tells nothing: the next start judges it."""

    def __init__(self, dsn: str, slot: SlotName, walsender: int, promoted: Callable[[int], None]) -> None:
        self._dsn = dsn
        self._slot = slot
        self._walsender = walsender
        self._promoted = promoted
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="promotion-watch")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        last = False
        while not last:
            last = self._stop.wait(_LOOK_SECONDS)
            timeline = self._look()
            if timeline is not None:
                log.info("the standby was promoted", timeline=timeline)
                self._promoted(timeline)
                return

    def _look(self) -> int | None:
        """The timeline that a primary writes; None for a standby."""
        try:
            with psycopg.connect(self._dsn, autocommit=True) as session:
                row = session.execute(
                    """
                    select case when not pg_is_in_recovery() then pg_walfile_name(pg_current_wal_lsn()) end
                      from pg_replication_slots
                     where slot_name = %s and active_pid = %s
                    """,
                    [self._slot, self._walsender],
                ).fetchone()
        except psycopg.Error:
            return None
        return int(row[0][:_TIMELINE_DIGITS], 16) if row is not None and row[0] is not None else None
