"""The permanent slot of a pipeline: found, judged, created, and taken hold of."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import psycopg
import stamina
import structlog
from psycopg.rows import class_row

from capture.config import CaptureConfig, OnLostSlot
from capture.errors import SlotInUse, SlotLost
from capture.replication_connection import ReplicationConnection
from schemas.identifiers import SlotName, slot_name
from schemas.lsn import Lsn
from stores.sqlite import SqliteStore

_START_ATTEMPTS = 30

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

    @property
    def confirmed_lsn(self) -> Lsn:
        return Lsn.parse(self.confirmed)


def find_slot(connection: psycopg.Connection, name: SlotName) -> SlotState | None:
    with connection.cursor(row_factory=class_row(SlotState)) as cursor:
        return cursor.execute(
            """
            select slot_name as name, plugin, database, coalesce(confirmed_flush_lsn, '0/0')::text as confirmed,
                   wal_status, active_pid
              from pg_replication_slots
             where slot_name = %s
            """,
            [name],
        ).fetchone()


def drop_slot(connection: psycopg.Connection, name: SlotName) -> None:
    connection.execute("select pg_drop_replication_slot(%s)", [name])


def judge_slot(slot: SlotState | None, name: SlotName, last: Lsn | None) -> None:
    """Raises SlotLost where the slot cannot continue from the last accepted checkpoint.

    The slot is never ahead of it: a start that finds it so has found loss. Without any checkpoint nothing was
    promised yet, and a missing slot is a first start."""
    if slot is None:
        if last is not None:
            raise SlotLost(f"Slot {name} is gone, and the topics end at {last}.")
        return
    if slot.wal_status == "lost":
        raise SlotLost(f"Postgres removed WAL that slot {name} still needed (wal_status is 'lost').")
    if last is not None and slot.confirmed_lsn > last:
        raise SlotLost(f"Slot {name} was moved to {slot.confirmed_lsn}, past the last checkpoint at {last}.")


def take_slot(
    config: CaptureConfig,
    session: psycopg.Connection,
    connection: ReplicationConnection,
    last: Lsn | None,
    store: SqliteStore,
    stop: threading.Event,
) -> Lsn:
    """Takes hold of the slot, so that no other capture can, and returns the LSN from which it streams.

    `last` is the LSN of the last accepted checkpoint."""
    name = slot_name(config.pipeline)
    slot = find_slot(session, name)
    try:
        judge_slot(slot, name, last)
    except SlotLost as lost:
        if config.tuning.on_lost_slot is OnLostSlot.FAIL:
            raise
        log.warning("slot lost, copying every table again", error=lost.reason)
        if slot is not None:
            drop_slot(session, name)
        slot = None
        for table in store.copies():
            store.clear_for_copy(table)
        last = None
    start = _slot_lsn(connection, slot, config, stop) if last is None else last
    for attempt in stamina.retry_context(on=SlotInUse, attempts=_START_ATTEMPTS, timeout=30.0, wait_max=1.0):
        with attempt:
            connection.start(name, config.source.publication, start)
    return start


def _slot_lsn(
    connection: ReplicationConnection, slot: SlotState | None, config: CaptureConfig, stop: threading.Event
) -> Lsn:
    if slot is not None:
        return slot.confirmed_lsn
    name = slot_name(config.pipeline)
    log.info("creating the slot", slot=name)
    return connection.create_slot(name, stop, lambda: log.info("slot waits for open transactions", slot=name))
