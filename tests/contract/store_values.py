"""Values that the suites of the stores put in and expect back."""

from __future__ import annotations

import itertools
from typing import Any, Protocol

from schemas.errors import Retry
from schemas.identifiers import LogId, PipelineName, SchemaId, TableName
from schemas.lsn import Lsn
from schemas.phases import DataSync, Errored, FinishedCopy, Init, Phase, SyncDone
from stores.cached import CachedStore
from stores.schema import SchemaVersion
from stores.state import (
    CAPTURE,
    DestinationTable,
    FinishedRange,
    Owner,
    RangeOfCopy,
    SchemaState,
    SourceIdentity,
    TableCopy,
)
from tests.support.builders import a_column, a_table

LAKE = Owner("lake")
ORDERS = TableName("public", "orders")
ITEMS = TableName("Shop äöü", 'order "items"')
LATE = Lsn.parse("FFFFFFFF/FFFFFFFF")
"""Above what a signed 64-bit column holds."""
SERVER = SourceIdentity(str(2**64 - 1), 2**32 - 1, 2**32 - 1)
FAILED = Errored('it "failed"', "mend it\x00", Retry.TIMED, 3, SyncDone(LATE))


class Postgres(Protocol):
    def dsn(self, database: str = "postgres") -> str: ...


_numbers = itertools.count()


def a_pipeline() -> PipelineName:
    return PipelineName(f"stores_{next(_numbers)}")


def a_copy(table: TableName = ORDERS, generation: Lsn = LATE, *, finished: bool = True) -> TableCopy:
    return TableCopy(
        table, LogId("log"), generation, SchemaId(2**31 - 1), "16384/1", "f00d", finished, 2**40, 2**40, 2**41
    )


def a_range(index: int, table: TableName = ORDERS, generation: Lsn = LATE, *, finished: bool = False) -> RangeOfCopy:
    done = FinishedRange(LATE, rows=2**40, bytes=2**50, topic_end=2**41) if finished else None
    file, end = (None, None) if index == 0 else (2**32 - 1, 2**32)
    return RangeOfCopy(table, generation, index, file, first=index * 2**31, end=end, finished=done)


def a_destination_table(
    table: TableName = ORDERS, state: SchemaState = SchemaState.APPLIED, schema_id: int = 7
) -> DestinationTable:
    return DestinationTable(table, TableName("main", f"{table.name}_copy"), SchemaId(schema_id), state)


def a_version(since: int, table: TableName = ORDERS, columns: int = 1) -> SchemaVersion:
    shape = a_table(*(a_column(f"column {number}") for number in range(columns)), name=table)
    return SchemaVersion(table, Lsn(since), SchemaId(columns), shape)


def go_through(store: CachedStore, *phases: Phase, owner: Owner = LAKE, table: TableName = ORDERS) -> None:
    for phase in phases:
        store.set_phase(owner, table, phase)


def everything(store: CachedStore) -> dict[str, Any]:
    """All that can be read, of the owners and tables of these tests."""
    owners, tables = (CAPTURE, LAKE), (ORDERS, ITEMS)
    return {
        "phases": [store.phases(owner) for owner in owners],
        "history": [store.history(owner, table) for owner in owners for table in tables],
        "progress": [store.progress(owner) for owner in owners],
        "sources": [store.source(owner) for owner in owners],
        "copies": store.copies(),
        "ranges": [store.ranges(table) for table in tables],
        "destination tables": [store.destination_tables(owner) for owner in owners],
        "mappings": [store.mapping(owner, table) for owner in owners for table in tables],
        "versions": [store.at(table, Lsn(lsn)) for table in tables for lsn in range(10)],
        "latest": [store.latest(table) for table in tables],
    }


def fill(store: CachedStore, owner: Owner = LAKE, table: TableName = ORDERS) -> None:
    go_through(store, Init(), DataSync(), FinishedCopy(), FAILED, owner=owner, table=table)
    store.advance(owner, LATE)
    store.set_source(owner, SERVER)
    store.set_copy(a_copy(table, finished=False))
    store.set_ranges([a_range(0, table), a_range(1, table, finished=True)])
    store.set_destination_table(owner, a_destination_table(table))
    store.set_mapping(owner, table, TableName("main", "o"))
    store.put(a_version(3, table))
    store.put(a_version(5, table, columns=2))
