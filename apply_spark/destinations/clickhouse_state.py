"""What a ClickHouse destination holds, as one record: progress, where each mirror is, and rows that are to be carried
over.

ClickHouse has no transactions and no conditional insert. What it has: an insert of one row is there whole or not at
all, and a table counts its inserts (`_block_number`), in the order in which they became visible. So every record has
the next version, and of two with one version that with the lower number counts: whoever reads, after its own insert,
that another one was first has been replaced. That holds on one server; on replicas it would need a quorum.
"""

# ruff: noqa: S608 -- ClickHouse has no composer of statements: names pass through quoted, values are parameters

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from clickhouse_connect.driver.client import Client

from apply_spark.destinations.clickhouse_types import quoted
from apply_spark.errors import DestinationTaken
from apply_spark.progress import Progress, TableProgress
from schemas.identifiers import DestinationName, TableName
from schemas.phases import Ready
from schemas.table import Column, TableSchema

DURABLE = "fsync_after_insert = 1, fsync_part_directory = 1"
"""Without these, what ClickHouse has confirmed may be gone after the machine lost its power."""
_LONGEST_NAME = 63
"""Of a column of Postgres, in bytes."""
_RECORDS = "destinations"
_IN_A_PARTITION = 256


class MirrorColumn(NamedTuple):
    """A column of the source, and the column of the storage that has its values."""

    number: int
    name: str
    stored: str


@dataclass(frozen=True)
class Mirror:
    """The view of a table, and the storage behind it. A column that is renamed or dropped is so in the view only."""

    table: TableName
    storage: str
    keyed: bool
    columns: tuple[MirrorColumn, ...]

    def stored(self, column: Column) -> str:
        """Where the values of a column are. KeyError: nowhere."""
        for each in self.columns:
            if each.number == column.number if each.number and column.number else each.name == column.name:
                return each.stored
        raise KeyError(column.name)

    def reshaped(self, schema: TableSchema) -> Mirror:
        """Columns keep their place in the storage; a new one is named by its number, which no other ever has."""
        return replace(self, columns=tuple(self._column(each) for each in schema.columns))

    def _column(self, column: Column) -> MirrorColumn:
        try:
            return MirrorColumn(column.number, column.name, self.stored(column))
        except KeyError:
            return MirrorColumn(column.number, column.name, _storage_name(f"c{column.number}"))


def new_mirror(schema: TableSchema, storage: str) -> Mirror:
    names = [f"c{c.number}" if c.number else f"p{place}" for place, c in enumerate(schema.columns)]
    columns = [
        MirrorColumn(column.number, column.name, _storage_name(name))
        for column, name in zip(schema.columns, names, strict=True)
    ]
    return Mirror(schema.name, storage, bool(schema.key), tuple(columns))


def _storage_name(short: str) -> str:
    """Longer than any name of Postgres: in a view, ClickHouse takes a name for the alias of another column."""
    return short.ljust(_LONGEST_NAME + 1, "_")


class Pending(NamedTuple):
    """Rows that the record has decided on: they are in this table until they are in the storage."""

    table: TableName
    staged: str


@dataclass(frozen=True)
class State:
    """A record. Its progress holds once all that is pending is carried over."""

    progress: Progress | None = None
    mirrors: Mapping[TableName, Mirror] = field(default_factory=dict)
    pending: tuple[Pending, ...] = ()
    before: tuple[TableProgress, ...] = ()
    """Where the tables stood that have pending rows."""
    shown: Mapping[TableName, Mirror] = field(default_factory=dict)
    """What the views of tables show whose next copy is being built: their mirrors from before."""

    @property
    def views(self) -> Mapping[TableName, Mirror]:
        """What every view shows."""
        return {**self.mirrors, **self.shown}

    @property
    def storages(self) -> set[str]:
        return {mirror.storage for mirror in (*self.mirrors.values(), *self.shown.values())}

    def levelled(self) -> State:
        """Copies whose tables are ready are shown; of tables that are gone stays what is shown."""
        tables = self.progress.tables if self.progress is not None else {}
        gone = {table: mirror for table, mirror in self.shown.items() if table not in tables}
        ready = {table for table in self.shown.keys() & tables if isinstance(tables[table].phase, Ready)}
        shown = {table: mirror for table, mirror in self.shown.items() if table not in gone.keys() | ready}
        return replace(self, mirrors={**self.mirrors, **gone}, shown=shown)

    def to_json(self) -> str:
        return json.dumps(
            {
                "progress": None if self.progress is None else self.progress.stored(),
                "mirrors": _mirrors_to_json(self.mirrors),
                "pending": [[*each.table, each.staged] for each in self.pending],
                "before": [table.to_json() for table in self.before],
                "shown": _mirrors_to_json(self.shown),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> State:
        data = json.loads(text)
        stored = data["progress"]
        return cls(
            progress=None if stored is None else Progress.restored(tuple(stored[0]), stored[1][2]),
            mirrors=_mirrors_from_json(data["mirrors"]),
            pending=tuple(Pending(TableName(schema, name), staged) for schema, name, staged in data["pending"]),
            before=tuple(TableProgress.from_json(each) for each in data["before"]),
            shown=_mirrors_from_json(data.get("shown", [])),
        )


def _mirrors_to_json(mirrors: Mapping[TableName, Mirror]) -> list[Any]:
    return [[*each.table, each.storage, each.keyed, each.columns] for each in mirrors.values()]


def _mirrors_from_json(stored: list[Any]) -> dict[TableName, Mirror]:
    mirrors = [
        Mirror(TableName(schema, name), storage, keyed, tuple(MirrorColumn(*column) for column in columns))
        for schema, name, storage, keyed, columns in stored
    ]
    return {mirror.table: mirror for mirror in mirrors}


class States:
    """The records of one destination."""

    def __init__(self, client: Client, database: str, destination: DestinationName, owner: str) -> None:
        self._client = client
        self._database = database
        self._table = quoted(database, _RECORDS)
        self._destination = destination
        self._owner = owner

    def make(self) -> None:
        self._client.command(f"create database if not exists {quoted(self._database)}")
        self._client.command(
            f"""create table if not exists {self._table}
                (destination String, version UInt64, owner String, state String)
                engine = MergeTree partition by (destination, intDiv(version, {_IN_A_PARTITION}))
                order by (destination, version)
                settings enable_block_number_column = 1, {DURABLE}"""
        )

    def newest(self) -> tuple[int, State]:
        """With its version; 0: there is none."""
        found = self._rows(
            f"""select version, state from {self._table}
                 where destination = {{destination:String}} and version = (
                   select max(version) from {self._table} where destination = {{destination:String}})
                 order by _block_number limit 1"""
        )
        return (found[0][0], State.from_json(found[0][1])) if found else (0, State())

    def add(self, version: int, state: State) -> None:
        """DestinationTaken: somebody else has made the record of this version."""
        self._client.insert(
            _RECORDS,
            [[self._destination, version, self._owner, state.to_json()]],
            column_names=["destination", "version", "owner", "state"],
            column_type_names=["String", "UInt64", "String", "String"],
            database=self._database,
        )
        newest = self._rows(
            f"""select version, owner from {self._table} where destination = {{destination:String}}
                 order by version desc, _block_number limit 1"""
        )
        if tuple(newest[0]) != (version, self._owner):  # a higher one: a successor is far ahead
            raise DestinationTaken(f"Another apply has written to destination {self._destination}.")
        if version % _IN_A_PARTITION == 0:
            self._forget(version // _IN_A_PARTITION - 1)

    def _forget(self, before: int) -> None:
        old = self._rows(
            f"""select distinct intDiv(version, {_IN_A_PARTITION}) from {self._table}
                 where destination = {{destination:String}} and version < {max(0, before) * _IN_A_PARTITION}"""
        )
        for (number,) in old:
            self._client.command(
                f"alter table {self._table} drop partition ({{destination:String}}, {number})",
                parameters={"destination": self._destination},
            )

    def _rows(self, query: str) -> Sequence[Any]:
        return self._client.query(query, parameters={"destination": self._destination}).result_rows
