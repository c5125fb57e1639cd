"""The WAL that the slot keeps on the source: how much, how fast it grows, when the server's limit would be reached."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import psycopg
import structlog
from psycopg import sql
from psycopg.rows import tuple_row

from capture.errors import source_error
from capture.metrics import (
    SLOT_WAL,
    SLOT_WAL_GROWTH,
    SLOT_WAL_HOLDER,
    SLOT_WAL_LEFT,
    SLOT_WAL_LIMIT,
    SLOT_WAL_LIMIT_TIME,
)
from capture.server_watch import ServerWatch
from schemas.identifiers import DestinationName, SlotName
from schemas.lsn import NOWHERE, Lsn

CAPTURE = "capture"
"""Who holds the WAL that no destination holds: it is not captured yet."""
_LOOK_SECONDS = 5.0
_WINDOW_SECONDS = 300.0

_WAL_END = sql.SQL("case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end")

log = structlog.get_logger(__name__)


def wal_end(connection: psycopg.Connection[Any]) -> Lsn:
    """Where the WAL of the server ends; on a standby, what it has replayed. No snapshot from before is above it."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        ((end,),) = cursor.execute(sql.SQL("select ({})::text").format(_WAL_END)).fetchall()
    return Lsn.parse(end)


@dataclass(frozen=True)
class SlotWal:
    """One look at the server. `limit` is max_slot_wal_keep_size, `left` what may be written before the slot is in
    danger, 0 where it is lost; both are None where nothing bounds the slot."""

    end: Lsn
    held: int | None
    left: int | None
    limit: int | None


def read_slot_wal(connection: psycopg.Connection[Any], slot: SlotName) -> SlotWal | None:
    """None where there is no such slot. The WAL of a standby ends where it has replayed it."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(
            sql.SQL("""
            select wal_end::text, (wal_end - restart_lsn)::bigint,
                   case wal_status when 'lost' then 0 else safe_wal_size end,
                   (select nullif(setting::bigint, -1) * 1048576  -- it is told in MB
                      from pg_settings where name = 'max_slot_wal_keep_size')
              from pg_replication_slots,
                   (select {} as wal_end) server
             where slot_name = %s
            """).format(_WAL_END),
            [slot],
        ).fetchone()
    return SlotWal(Lsn.parse(row[0]), *row[1:]) if row is not None else None


def seconds_to_limit(left: int | None, growth: float | None) -> float | None:
    """When `left` bytes are used up at this growth; None: never, or not known."""
    if left is None:
        return None
    if left <= 0:
        return 0.0
    return left / growth if growth is not None and growth > 0 else None


class Growth:
    """How fast a number of bytes grew over the last minutes."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def add(self, at: float, size: int) -> float | None:
        """Bytes a second, with this look; None at the first."""
        self._seen.append((at, size))
        while self._seen[0][0] < at - _WINDOW_SECONDS:
            self._seen.popleft()
        since, before = self._seen[0]
        return (size - before) / (at - since) if at > since else None


class SlotWalWatch(ServerWatch):
    """Looks every few seconds and sets the gauges; beside the stream, which may wait for Kafka while WAL grows."""

    def __init__(
        self,
        dsn: str,
        slot: SlotName,
        destinations: Iterable[DestinationName],
        holders: Callable[[], Iterable[DestinationName]],
    ) -> None:
        super().__init__("slot-wal-watch", dsn, _LOOK_SECONDS)
        self._slot = slot
        self._names = (CAPTURE, *destinations)
        self._holders = holders
        self._growth = Growth()
        self._failing = False
        self.end = NOWHERE
        """Where the server's WAL ended at the last look; may be read from another thread."""

    def _look(self, session: psycopg.Connection) -> None:
        wal = read_slot_wal(session, self._slot)
        self._failing = False
        if wal is not None:
            self._show(wal)

    def _failed(self, error: psycopg.Error) -> None:
        if not self._failing:
            log.warning("the slot's WAL cannot be read", error=source_error(error, "reading the slot").reason)
        self._failing = True

    def _show(self, wal: SlotWal) -> None:
        self.end = wal.end
        growth = self._growth.add(time.monotonic(), wal.held) if wal.held is not None else None
        seconds = seconds_to_limit(wal.left, growth)
        SLOT_WAL.set(wal.held or 0)
        SLOT_WAL_LIMIT.set(math.inf if wal.limit is None else wal.limit)
        SLOT_WAL_LEFT.set(math.inf if wal.left is None else wal.left)
        SLOT_WAL_GROWTH.set(growth or 0.0)
        SLOT_WAL_LIMIT_TIME.set(math.inf if seconds is None else seconds)
        holders: set[str] = set(self._holders()) or {CAPTURE}
        for name in self._names:
            SLOT_WAL_HOLDER.labels(name).set(name in holders)
