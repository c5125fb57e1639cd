"""Notices that the standby we stream from became a primary, under the same connection (Postgres 16 and later).

Its WAL goes on as another timeline, and all of it is what we received: the source that we remember moves to that
timeline with it. Otherwise the next start would find a server that left our timeline before our last checkpoint, which
is what a standby looks like that was promoted without our transactions.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import structlog

from capture.server_watch import ServerWatch
from schemas.identifiers import SlotName

_LOOK_SECONDS = 1.0
_TIMELINE_DIGITS = 8  # hexadecimal, at the beginning of the name of every file of WAL

log = structlog.get_logger(__name__)


class PromotionWatch(ServerWatch):
    """Looks once a second while `with` lasts, and a last time at its end. `promoted` gets the timeline, once.

    A server that cannot be asked, or that does not hold our walsender, tells nothing: the next start judges it."""

    def __init__(self, dsn: str, slot: SlotName, walsender: int, promoted: Callable[[int], None]) -> None:
        super().__init__("promotion-watch", dsn, _LOOK_SECONDS)
        self._slot = slot
        self._walsender = walsender
        self._promoted = promoted
        self._told = False

    def _look(self, session: psycopg.Connection) -> None:
        timeline = None if self._told else self._timeline(session)
        if timeline is not None:
            log.info("the standby was promoted", timeline=timeline)
            self._promoted(timeline)
            self._told = True

    def _timeline(self, session: psycopg.Connection) -> int | None:
        """The timeline that a primary writes; None for a standby."""
        row = session.execute(
            """
            select case when not pg_is_in_recovery() then pg_walfile_name(pg_current_wal_lsn()) end
              from pg_replication_slots
             where slot_name = %s and active_pid = %s
            """,
            [self._slot, self._walsender],
        ).fetchone()
        return int(row[0][:_TIMELINE_DIGITS], 16) if row is not None and row[0] is not None else None

    def _failed(self, error: psycopg.Error) -> None:
        pass
