"""What is remembered, as relations: values to plain cells on the way down, cells to values on the way up.

An LSN is written as Postgres prints it (no signed 64-bit column holds them all), structures as JSON text. The columns
have the same names in every store.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from schemas.identifiers import LogId, SchemaId, TableName
from schemas.lsn import Lsn
from schemas.phases import Phase, phase_from_json, phase_to_json
from schemas.table import TableSchema
from stores.schema import SchemaVersion
from stores.state import DestinationTable, FinishedRange, Owner, RangeOfCopy, SchemaState, SourceIdentity, TableCopy

Row: TypeAlias = tuple[Any, ...]
"""Text, integers and booleans, in the order of the columns."""

K = TypeVar("K")
V = TypeVar("V")

OwnedTable: TypeAlias = tuple[Owner, TableName]
SchemaKey: TypeAlias = tuple[TableName, Lsn]
RangeKey: TypeAlias = tuple[TableName, int]


@dataclass(frozen=True, eq=False)
class Relation(Generic[K, V]):
    """One kind of memory: a value by its key, and how both are written down."""

    name: str
    key_columns: tuple[str, ...]
    value_columns: tuple[str, ...]
    key_to_cells: Callable[[K], Row]
    value_to_cells: Callable[[V], Row]
    read: Callable[[Row], tuple[K, V]]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.key_columns + self.value_columns

    def cells(self, key: K, value: V) -> Row:
        return self.key_to_cells(key) + self.value_to_cells(value)


@dataclass(frozen=True)
class Put:
    """A row to be there, in place of any other with its key."""

    relation: Relation[Any, Any]
    key: Any
    value: Any


@dataclass(frozen=True)
class Drop:
    """A key to be there no more."""

    relation: Relation[Any, Any]
    key: Any


Change: TypeAlias = Put | Drop


def _owned_table_to_cells(key: OwnedTable) -> Row:
    owner, table = key
    return (owner, *table)


def _history_to_cells(history: tuple[Phase, ...]) -> Row:
    return (json.dumps([phase_to_json(phase) for phase in history]),)


def _read_history(row: Row) -> tuple[OwnedTable, tuple[Phase, ...]]:
    owner, schema, name, history = row
    return (Owner(owner), TableName(schema, name)), tuple(phase_from_json(phase) for phase in json.loads(history))


def _read_progress(row: Row) -> tuple[Owner, Lsn]:
    owner, lsn = row
    return Owner(owner), Lsn.parse(lsn)


def _copy_to_cells(copy: TableCopy) -> Row:
    return (
        copy.log_id,
        str(copy.generation),
        copy.schema_id,
        copy.filenode,
        copy.fingerprint,
        copy.finished,
        copy.rows,
        copy.log_from,
        copy.changes_from,
    )


def _read_copy(row: Row) -> tuple[TableName, TableCopy]:
    schema, name, log_id, generation, schema_id, filenode, fingerprint, finished, rows, log_from, changes_from = row
    table = TableName(schema, name)
    return table, TableCopy(
        table=table,
        log_id=LogId(log_id),
        generation=Lsn.parse(generation),
        schema_id=SchemaId(schema_id),
        filenode=filenode,
        fingerprint=fingerprint,
        finished=bool(finished),
        rows=rows,
        log_from=log_from,
        changes_from=changes_from,
    )


def _range_key_to_cells(key: RangeKey) -> Row:
    table, index = key
    return (*table, index)


def _range_to_cells(part: RangeOfCopy) -> Row:
    where = (str(part.generation), part.file, part.first, part.end)
    match part.finished:
        case None:
            return (*where, None, None, None, None)
        case FinishedRange(snapshot=snapshot, rows=rows, bytes=size, topic_end=topic_end):
            return (*where, str(snapshot), rows, size, topic_end)


def _read_range(row: Row) -> tuple[RangeKey, RangeOfCopy]:
    schema, name, index, generation, file, first, end, snapshot, rows, size, topic_end = row
    finished = FinishedRange(Lsn.parse(snapshot), rows, size, topic_end) if snapshot is not None else None
    table = TableName(schema, name)
    return (table, index), RangeOfCopy(table, Lsn.parse(generation), index, file, first, end, finished)


def _destination_table_to_cells(table: DestinationTable) -> Row:
    return (*table.destination_name, table.schema_id, table.state.value)


def _read_destination_table(row: Row) -> tuple[OwnedTable, DestinationTable]:
    owner, schema, name, destination_schema, destination_name, schema_id, state = row
    table = TableName(schema, name)
    return (Owner(owner), table), DestinationTable(
        table=table,
        destination_name=TableName(destination_schema, destination_name),
        schema_id=SchemaId(schema_id),
        state=SchemaState(state),
    )


def _read_mapping(row: Row) -> tuple[OwnedTable, TableName]:
    owner, schema, name, destination_schema, destination_name = row
    return (Owner(owner), TableName(schema, name)), TableName(destination_schema, destination_name)


def _schema_key_to_cells(key: SchemaKey) -> Row:
    table, since = key
    return (*table, str(since))


def _schema_version_to_cells(version: SchemaVersion) -> Row:
    return (version.schema_id, json.dumps(version.schema.to_json()))


def _read_schema_version(row: Row) -> tuple[SchemaKey, SchemaVersion]:
    schema, name, since, schema_id, shape = row
    version = SchemaVersion(
        table=TableName(schema, name),
        since=Lsn.parse(since),
        schema_id=SchemaId(schema_id),
        schema=TableSchema.from_json(json.loads(shape)),
    )
    return (version.table, version.since), version


def _source_to_cells(source: SourceIdentity) -> Row:
    return (source.system_id, source.database_oid, source.timeline)


def _read_source(row: Row) -> tuple[Owner, SourceIdentity]:
    owner, system_id, database_oid, timeline = row
    return Owner(owner), SourceIdentity(system_id, database_oid, timeline)


PHASES: Relation[OwnedTable, tuple[Phase, ...]] = Relation(
    name="phases",
    key_columns=("owner", "table_schema", "table_name"),
    value_columns=("history",),
    key_to_cells=_owned_table_to_cells,
    value_to_cells=_history_to_cells,
    read=_read_history,
)
PROGRESS: Relation[Owner, Lsn] = Relation(
    name="progress",
    key_columns=("owner",),
    value_columns=("lsn",),
    key_to_cells=lambda owner: (owner,),
    value_to_cells=lambda lsn: (str(lsn),),
    read=_read_progress,
)
COPIES: Relation[TableName, TableCopy] = Relation(
    name="copies",
    key_columns=("table_schema", "table_name"),
    value_columns=(
        "log_id",
        "generation",
        "schema_id",
        "filenode",
        "fingerprint",
        "finished",
        "row_count",
        "log_from",
        "changes_from",
    ),
    key_to_cells=tuple,
    value_to_cells=_copy_to_cells,
    read=_read_copy,
)
COPY_RANGES: Relation[RangeKey, RangeOfCopy] = Relation(
    name="copy_ranges",
    key_columns=("table_schema", "table_name", "range_index"),
    value_columns=(
        "generation",
        "file",
        "first_block",
        "end_block",
        "snapshot",
        "row_count",
        "byte_count",
        "topic_end",
    ),
    key_to_cells=_range_key_to_cells,
    value_to_cells=_range_to_cells,
    read=_read_range,
)
DESTINATION_TABLES: Relation[OwnedTable, DestinationTable] = Relation(
    name="destination_tables",
    key_columns=("owner", "table_schema", "table_name"),
    value_columns=("destination_schema", "destination_name", "schema_id", "state"),
    key_to_cells=_owned_table_to_cells,
    value_to_cells=_destination_table_to_cells,
    read=_read_destination_table,
)
MAPPINGS: Relation[OwnedTable, TableName] = Relation(
    name="mappings",
    key_columns=("owner", "table_schema", "table_name"),
    value_columns=("destination_schema", "destination_name"),
    key_to_cells=_owned_table_to_cells,
    value_to_cells=tuple,
    read=_read_mapping,
)
SCHEMA_VERSIONS: Relation[SchemaKey, SchemaVersion] = Relation(
    name="schema_versions",
    key_columns=("table_schema", "table_name", "since"),
    value_columns=("schema_id", "table_shape"),
    key_to_cells=_schema_key_to_cells,
    value_to_cells=_schema_version_to_cells,
    read=_read_schema_version,
)
SOURCES: Relation[Owner, SourceIdentity] = Relation(
    name="sources",
    key_columns=("owner",),
    value_columns=("system_id", "database_oid", "timeline"),
    key_to_cells=lambda owner: (owner,),
    value_to_cells=_source_to_cells,
    read=_read_source,
)

RELATIONS: tuple[Relation[Any, Any], ...] = (
    PHASES,
    PROGRESS,
    COPIES,
    COPY_RANGES,
    DESTINATION_TABLES,
    MAPPINGS,
    SCHEMA_VERSIONS,
    SOURCES,
)
