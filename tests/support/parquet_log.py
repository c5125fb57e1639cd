"""A change log in Parquet read as any client could: the tables that its manifests and files tell of.

Dates and moments are the numbers that Parquet has for them: Python has no year 10000."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileSystem

from apply_spark.reshape import plain_default
from schemas.identifiers import TableName
from schemas.table import TableSchema


@dataclass(frozen=True)
class ParquetLog:
    """A log on a disk or on S3, by Arrow's own client of either."""

    files: FileSystem
    root: str

    def replayed(self, destination: str, table: TableName) -> list[tuple[Any, ...]]:
        """Every row of a table, in the order of its columns, after its last copy and all that the log has since."""
        told = [
            entry
            for manifest in self.manifests(destination)
            for entry in manifest["tables"]
            if (entry["schema"], entry["table"]) == table
        ]
        begin = max(place for place, entry in enumerate(told) if entry["what"] == "copy begins")
        rows = _Rows(TableSchema.from_json(told[begin]["shape"]))
        for entry in told[begin + 1 :]:
            if entry["what"] == "altered":
                rows.alter(TableSchema.from_json(entry["shape"]))
            else:
                rows.take(_plain_rows(self.read(entry["file"])))
        return rows.all()

    def manifests(self, destination: str) -> list[dict[str, Any]]:
        """In order."""
        names = [name for name in self.names(f"penstock/{destination}") if name.endswith(".json")]
        return [json.loads(self._content(name)) for name in names]

    def names(self, folder: str = "") -> list[str]:
        """Of all files, as the manifests have them."""
        found = self.files.get_file_info(
            FileSelector(f"{self.root}/{folder}".rstrip("/"), allow_not_found=True, recursive=True)
        )
        return sorted(each.path.removeprefix(f"{self.root}/") for each in found if each.is_file)

    def read(self, name: str) -> pa.Table:
        with self.files.open_input_file(f"{self.root}/{name}") as file:
            return pq.read_table(file)

    def _content(self, name: str) -> bytes:
        with self.files.open_input_file(f"{self.root}/{name}") as file:
            content: bytes = file.read()
            return content


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


def _plain_rows(table: pa.Table) -> list[dict[str, Any]]:
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
