"""The permanent slot of a pipeline: found, judged, created, and taken hold of."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import psycopg
import stamina
import structlog
from psycopg.rows import class_row

from capture.config import CaptureConfig, Failover, OnLostSlot
from capture.errors import SlotInUse, SlotLost, SourceUnreachable
from capture.identity import Server, identify, judge_source
from capture.replication_connection import ReplicationConnection
from capture.waiting import waiting_reporter
from schemas.failpoints import failpoint
from schemas.identifiers import SlotName, slot_name
from schemas.lsn import Lsn
from stores.state import SourceIdentity

_START_ATTEMPTS = 30
_SOLUTIONS = {
    "idle_timeout": "Raise idle_replication_slot_timeout so that it does not happen again.",
    "wal_level_insufficient": "Set wal_level = logical again.",
    "rows_removed": "Set hot_standby_feedback = on at the standby, so that its primary keeps the catalog's old rows.",
}
"""What helps, by the reason that Postgres gives; without one it is max_slot_wal_keep_size."""

_GONE = (
    f"{SlotLost.resync} If a standby was promoted, it had no copy of the slot: set `source.failover` to `slot`, and "
    "sync_replication_slots at the standbys, for the next time (Postgres 17 and newer)."
)

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class SlotState:
    """A row of pg_replication_slots."""

    name: SlotName
    plugin: str
    database: str
    confirmed: str
    wal_status: str | None
    active_pid: int | None
    invalidation: str | None = None
    """Why Postgres took it away; told from Postgres 17 on."""
    failover: bool | None = None
    """Whether standbys may keep it in step; from Postgres 17 on."""
    of_the_primary: bool = False
    """Kept in step here by a standby, which gives it away only once it is promoted."""

    @property
    def confirmed_lsn(self) -> Lsn:
        return Lsn.parse(self.confirmed)


@dataclass(frozen=True)
class TakenSlot:
    """A slot that streams to us, from `start` on."""

    start: Lsn
    source: SourceIdentity
    anew: bool
    """What was captured before has no continuation here: a new log begins, and every table is copied."""
    from_standby: bool


def find_slot(connection: psycopg.Connection, name: SlotName) -> SlotState | None:
    with connection.cursor(row_factory=class_row(SlotState)) as cursor:
        return cursor.execute(
            """
            select slot_name as name, plugin, database, coalesce(confirmed_flush_lsn, '0/0')::text as confirmed,
                   wal_status, active_pid, to_jsonb(slots) ->> 'invalidation_reason' as invalidation,
                   (to_jsonb(slots) ->> 'failover')::boolean as failover,
                   pg_is_in_recovery() and coalesce((to_jsonb(slots) ->> 'synced')::boolean, false) as of_the_primary
              from pg_replication_slots slots
             where slot_name = %s
            """,
            [name],
        ).fetchone()


def drop_slot(connection: psycopg.Connection, name: SlotName) -> None:
    connection.execute("select pg_drop_replication_slot(%s)", [name])


def slot_taken_away(name: SlotName, invalidation: str | None) -> SlotLost:
    """The error for a slot whose wal_status is `lost`."""
    why = f" ({invalidation})" if invalidation else ""
    solution = SlotLost.solution
    if invalidation in _SOLUTIONS:
        solution = f"{SlotLost.resync} {_SOLUTIONS[invalidation]}"
    return SlotLost(f"Postgres took slot {name} away{why}: it gives no more changes.", solution=solution)


def judge_slot(slot: SlotState | None, name: SlotName, last: Lsn | None) -> None:
    """Raises SlotLost where the slot cannot continue from the last accepted checkpoint.

    The slot is never ahead of it: a start that finds it so has found loss. Without any checkpoint nothing was
    promised yet, and a missing slot is a first start."""
    if slot is None:
        if last is not None:
            raise SlotLost(f"Slot {name} is gone, and the topics end at {last}.", solution=_GONE)
        return
    if slot.wal_status == "lost":
        raise slot_taken_away(name, slot.invalidation)
    if last is not None and slot.confirmed_lsn > last:
        raise SlotLost(f"Slot {name} was moved to {slot.confirmed_lsn}, past the last checkpoint at {last}.")


def judge_standby(server: Server, slot: SlotState | None) -> None:
    """Raises SourceUnreachable where nothing can be read before the server is promoted: a failover has that moment."""
    if not server.decodes or (slot is not None and slot.of_the_primary):
        raise SourceUnreachable(
            f"The server is a standby of version {server.version}, which cannot give changes before it is promoted.",
            solution="Promote it (`select pg_promote();`), or name the primary in `source.dsn`.",
        )


def take_slot(
    config: CaptureConfig,
    session: psycopg.Connection,
    connection: ReplicationConnection,
    last: Lsn | None,
    known: SourceIdentity | None,
    stop: threading.Event,
) -> TakenSlot:
    """Takes hold of the slot, so that no other capture can.

    `last` is the LSN of the last accepted checkpoint, `known` the server from which the topics were filled."""
    name = slot_name(config.pipeline)
    server = identify(session, connection)
    slot = find_slot(session, name)
    judge_standby(server, slot)
    anew = False
    try:
        if last is not None:
            judge_source(known, server, last, connection.timeline_history)
        judge_slot(slot, name, last)
    except SlotLost as lost:
        if config.tuning.on_lost_slot is OnLostSlot.FAIL:
            raise
        log.warning("slot lost, copying every table again", error=lost.reason)
        if slot is not None:
            drop_slot(session, name)
        slot, last, anew = None, None, True
    if slot is None:
        log.info("creating the slot", slot=name)
        failpoint("slot.creating", SourceUnreachable)
        start = connection.create_slot(name, config.source.failover, stop, waiting_reporter(session))
        failpoint("slot.created", SourceUnreachable)
    else:
        start = slot.confirmed_lsn if last is None else last
    for attempt in stamina.retry_context(on=SlotInUse, attempts=_START_ATTEMPTS, timeout=30.0, wait_max=1.0):
        with attempt:
            if slot is not None and slot.failover is False and config.source.failover is Failover.SLOT:
                connection.let_slot_fail_over(name)
            connection.start(name, config.source, start)
    return TakenSlot(start, server.identity, anew, server.is_standby)
