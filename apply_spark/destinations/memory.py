"""Rows in this process's memory: for tests of pipelines, and the plainest reading of the contract."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from pydantic import BaseModel

from apply_spark.destination import ALL_MODES, Alteration, Batch, Ending, TableChanges
from apply_spark.errors import DestinationAway, DestinationInUse, PartialRow, TableFailed
from apply_spark.progress import Progress
from apply_spark.reshape import default, plain_default
from apply_spark.rows import Rows
from schemas.envelope import avro_name
from schemas.failpoints import failpoint
from schemas.identifiers import DestinationName, TableName
from schemas.phases import Ready
from schemas.settings import checked
from schemas.table import TableSchema

Key: TypeAlias = tuple[Any, ...]


class MemoryOptions(BaseModel, frozen=True, extra="forbid"):
    """It has none."""


class MemoryDestination:
    """A mirror as dictionaries: `rows(table)` gives what a client would read."""

    modes = ALL_MODES

    def __init__(self, name: DestinationName, options: Mapping[str, Any]) -> None:
        checked(MemoryOptions, options, f"destinations.{name}")
        self.name = name
        self._progress: Progress | None = None
        self._keyed: dict[TableName, dict[Key, dict[str, Any]]] = {}
        self._bags: dict[TableName, Counter[Key]] = {}
        self._schemas: dict[TableName, TableSchema] = {}
        self._before: dict[TableName, list[tuple[Any, ...]]] = {}
        """What clients read of tables whose next copy is not level yet."""
        self._held = threading.Lock()

    def startup(self) -> Progress | None:
        if not self._held.acquire(blocking=False):
            raise DestinationInUse(f"Destination {self.name} is in use by another apply of this process.")
        return self._progress

    def shutdown(self) -> None:
        if self._held.locked():
            self._held.release()

    def rows(self, table: TableName) -> list[tuple[Any, ...]]:
        """Every row, in the order of the columns; in no order among themselves."""
        if table in self._before:
            return self._before[table]
        fields = _fields(self._schemas[table])
        if table in self._bags:
            return list(self._bags[table].elements())
        return [tuple(row[field] for field in fields) for row in self._keyed[table].values()]

    def drop_table_for_copy(self, schema: TableSchema, progress: Progress) -> None:
        with self._writing(progress):
            if schema.name in self._schemas:
                self._before[schema.name] = self.rows(schema.name)
            self._schemas[schema.name] = schema
            self._keyed.pop(schema.name, None)
            self._bags.pop(schema.name, None)
            if schema.key:
                self._keyed[schema.name] = {}
            else:
                self._bags[schema.name] = Counter()

    def write_table_rows(self, schema: TableSchema, rows: Rows, progress: Progress) -> None:
        with self._writing(progress):
            for copied in _events(rows):
                self._insert(schema, copied["row"])

    def write_events(self, batch: Batch) -> None:
        with self._writing(batch.progress):
            for alteration in batch.altered:
                failpoint("memory.altering", DestinationAway)
                self._alter(alteration)
                failpoint("memory.altered", DestinationAway)
            for changes in batch.tables:
                self._write(changes)

    def save_progress(self, progress: Progress) -> None:
        with self._writing(progress):
            pass

    @contextmanager
    def _writing(self, progress: Progress) -> Iterator[None]:
        """Rows and progress, or nothing."""
        rows = {name: dict(rows) for name, rows in self._keyed.items()}
        before = rows, {n: Counter(b) for n, b in self._bags.items()}, dict(self._schemas), dict(self._before)
        try:
            yield
            failpoint("memory.committing", DestinationAway)
        except BaseException:
            self._keyed, self._bags, self._schemas, self._before = before
            raise
        self._progress = progress
        held = {name for name, table in progress.tables.items() if not isinstance(table.phase, Ready)}
        self._before = {name: rows for name, rows in self._before.items() if name in held}
        failpoint("memory.committed", DestinationAway)

    def _alter(self, alteration: Alteration) -> None:
        """Every row anew, in the columns of the new shape."""
        table, old = alteration.after.name, {c.number: c for c in alteration.before.columns}
        sources = [
            (avro_name(new.name), old.get(new.number), _array(default(new).as_py())) for new in alteration.after.columns
        ]

        def made(row: dict[str, Any]) -> dict[str, Any]:
            return {
                field: row[avro_name(before.name)] if before is not None else value for field, before, value in sources
            }

        if table in self._keyed:
            self._keyed[table] = {key: made(row) for key, row in self._keyed[table].items()}
        else:
            fields, bag = _fields(alteration.before), Counter[Key]()
            for row, count in self._bags[table].items():
                bag[_plain(made(dict(zip(fields, row, strict=True))).values())] += count
            self._bags[table] = bag
        self._schemas[table] = alteration.after

    def _write(self, changes: TableChanges) -> None:
        table = changes.schema.name
        if changes.truncate:
            self._keyed.get(table, {}).clear()
            self._bags.get(table, Counter()).clear()
        if changes.ending is not None:
            self._end(changes.schema, changes.ending)
        events = _events(changes.rows)
        if not changes.schema.key:
            for event in events:
                self._bags[table][_plain(event["row"].values())] += event["net"]
            return
        rows = self._keyed[table]
        filled = [self._filled(changes.schema, event, rows) for event in events if not event["deleted"]]
        for event in events:
            rows.pop(_plain(event["key"].values()), None)
        for row in filled:
            self._insert(changes.schema, row)

    def _end(self, schema: TableSchema, ending: Ending) -> None:
        values = {avro_name(column.name): plain_default(column) for column in ending.values}
        current, value = avro_name(ending.current.name), plain_default(ending.current)
        rows, self._keyed[schema.name] = list(self._keyed[schema.name].values()), {}
        for row in rows:
            self._insert(schema, row | values if row[current] == value else row)

    def _filled(self, schema: TableSchema, event: dict[str, Any], rows: dict[Key, dict[str, Any]]) -> dict[str, Any]:
        row: dict[str, Any] = dict(event["row"])
        if event.get("missing"):
            base = rows.get(_plain(event["base"].values())) if event["base"] is not None else None
            if base is None:
                raise TableFailed(schema.name, PartialRow("A row lacks columns that were not sent, and has no base."))
            row |= {field: base[field] for field in event["missing"]}
        return row

    def _insert(self, schema: TableSchema, row: dict[str, Any]) -> None:
        if schema.key:
            self._keyed[schema.name][_plain(row[avro_name(column.name)] for column in schema.key)] = row
        else:
            self._bags[schema.name][_plain(row.values())] += 1


def _events(rows: Rows) -> list[dict[str, Any]]:
    """An array is a list, or the literal that no list can hold; Spark has a struct for the two."""
    return [
        {
            name: {field: _array(inner) for field, inner in value.items()} if isinstance(value, dict) else value
            for name, value in event.items()
        }
        for event in rows.arrow().to_pylist()
    ]


def _array(value: Any) -> Any:  # noqa: ANN401 -- rows hold any type
    match value:
        case {"member0": items, "member1": literal}:
            return items if literal is None else literal
        case _:
            return value


def _fields(schema: TableSchema) -> list[str]:
    return [avro_name(column.name) for column in schema.columns]


def _plain(values: Iterable[Any]) -> Key:
    """Values that can be hashed and are equal where Postgres says so: lists become tuples, every NaN the same one."""
    return tuple(_hashable(value) for value in values)


def _hashable(value: Any) -> Any:  # noqa: ANN401 -- rows hold any type
    match value:
        case list():
            return _plain(value)
        case bytearray():
            return bytes(value)
        case float() if math.isnan(value):
            return math.nan
        case _:
            return value
