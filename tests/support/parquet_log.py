"""A change log in Parquet read as any client could: the tables that its manifests and files tell of.

Dates and moments are the numbers that Parquet has for them: Python has no year 10000."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from apply_spark.reshape import plain_default
from schemas.identifiers import TableName
from schemas.table import TableSchema


def replayed(root: Path, destination: str, table: TableName) -> list[tuple[Any, ...]]:
    """Every row of a table, in the order of its columns, after its last copy and all that the log has since."""
    told = [
        entry
        for manifest in sorted((root / "penstock" / destination).glob("*.json"))
        for entry in json.loads(manifest.read_text())["tables"]
        if (entry["schema"], entry["table"]) == table
    ]
    begin = max(place for place, entry in enumerate(told) if entry["what"] == "copy begins")
    rows = _Rows(TableSchema.from_json(told[begin]["shape"]))
    for entry in told[begin + 1 :]:
        if entry["what"] == "altered":
            rows.alter(TableSchema.from_json(entry["shape"]))
        else:
            rows.take(_read(root / entry["file"]))
    return rows.all()


class _Rows:
    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        self._keyed: dict[Any, dict[str, Any]] = {}
        self._bag: Counter[Any] = Counter()

    def take(self, events: list[dict[str, Any]]) -> None:
        before = dict(self._keyed)
        for event in events:
            if event["_op"] == "t":
                self._keyed, before = {}, {}
                self._bag.clear()
            elif self._keys:
                row = {name: event[name] for name in self._names}
                row |= {name: before[self._key(event["_base"])][name] for name in event["_missing"] or ()}
                self._keyed.pop(self._key(event), None)
                if event["_op"] != "d":
                    self._keyed[self._key(event)] = row
            else:
                self._bag[tuple(_hashable(event[name]) for name in self._names)] += event["_net"]

    def alter(self, after: TableSchema) -> None:
        old = {column.number: column.name for column in self._schema.columns}
        sources = [(column, old.get(column.number)) for column in after.columns]

        def made(row: dict[str, Any]) -> dict[str, Any]:
            return {new.name: plain_default(new) if name is None else row[name] for new, name in sources}

        bag = [dict(zip(self._names, row, strict=True)) for row in self._bag.elements()]
        self._schema = after
        self._keyed = {key: made(row) for key, row in self._keyed.items()}
        self._bag = Counter(tuple(made(row).values()) for row in bag)

    def all(self) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in self._keyed.values()] + list(self._bag.elements())

    @property
    def _names(self) -> list[str]:
        return [column.name for column in self._schema.columns]

    @property
    def _keys(self) -> list[str]:
        return [column.name for column in self._schema.key]

    def _key(self, values: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(_hashable(values[name]) for name in self._keys)


def _read(file: Path) -> list[dict[str, Any]]:
    table = pq.read_table(file, partitioning=None)
    plain = pa.schema([field.with_type(_plain(field.type)) for field in table.schema])
    return table.cast(plain).to_pylist()


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_date(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def _hashable(value: Any) -> Any:  # noqa: ANN401 -- values of any type
    match value:
        case list():
            return tuple(_hashable(item) for item in value)
        case float() if math.isnan(value):
            return "NaN"
        case _:
            return value
