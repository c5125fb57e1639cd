"""The permanent slot of a pipeline: found, judged, or created."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg.rows import class_row

from capture.errors import SlotLost
from schemas.identifiers import SlotName
from schemas.lsn import Lsn


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
