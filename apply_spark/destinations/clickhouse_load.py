"""The rows of a batch, in Arrow, to the columns in which ClickHouse takes them in; what it has no place for is refused.

A column of the table is `c0`, `c1` and so on, from `key` where it belongs to the key, else from `row`; the key of a
base is `b0` and so on. Tables with a key have `deleted`, and `missing` where some rows are partial; others have `net`,
which is 1 or below 0 here, and `place`, the number of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from apply_spark.destinations.arrow_types import image_of, values_of
from apply_spark.destinations.clickhouse_types import LoadedColumn, held_column
from apply_spark.errors import NotHeld, TableFailed
from schemas.table import Column, TableSchema

_DELETED = LoadedColumn("deleted", "UInt8", pa.uint8())
_MISSING = LoadedColumn("missing", "Array(String)", pa.list_(pa.string()))
_NET = LoadedColumn("net", "Int64", pa.int64())
_PLACE = LoadedColumn("place", "UInt64", pa.uint64())


class Load(NamedTuple):
    """Rows, and the columns of the table that takes them."""

    columns: list[LoadedColumn]
    rows: pa.Table


class _Part(NamedTuple):
    """What is taken from a batch, and the columns that it becomes."""

    columns: list[LoadedColumn]
    arrays: Callable[[pa.RecordBatch], list[pa.Array]]


def loaded(rows: pa.Table, schema: TableSchema) -> Load:
    """TableFailed: a value has no place."""
    rows = _with_flags(rows) if schema.key else _one_by_one(rows)
    parts = list(_parts(rows, schema))
    columns = [column for part in parts for column in part.columns]
    fields = pa.schema([pa.field(column.name, column.arrow) for column in columns])
    batches = [batch for batch in rows.to_batches() if batch.num_rows]
    _refuse_unheld_values(batches, schema)
    arrays = [[array for part in parts for array in part.arrays(batch)] for batch in batches]
    return Load(columns, pa.Table.from_batches([pa.RecordBatch.from_arrays(a, schema=fields) for a in arrays], fields))


def _with_flags(rows: pa.Table) -> pa.Table:
    """Copied rows have nothing but themselves."""
    if "deleted" in rows.column_names:
        return rows
    rows = rows.filter(pc.is_valid(rows["row"]))
    return rows.append_column("deleted", pa.array(np.zeros(rows.num_rows, dtype=bool)))


def _one_by_one(rows: pa.Table) -> pa.Table:
    """A row of which several copies come becomes as many; each has a place of its own."""
    if "net" in rows.column_names:
        net = rows["net"].to_numpy()
        places = np.repeat(np.arange(len(net)), np.maximum(net, 1))
        rows = rows.select(["row"]).take(pa.array(places)).append_column("net", pa.array(np.minimum(net, 1)[places]))
    else:
        rows = rows.filter(pc.is_valid(rows["row"]))
        rows = rows.append_column("net", pa.array(np.ones(rows.num_rows, dtype=np.int64)))
    return rows.append_column("place", pa.array(np.arange(rows.num_rows, dtype=np.uint64)))


def _parts(rows: pa.Table, schema: TableSchema) -> Iterator[_Part]:
    for place, column in enumerate(schema.columns):
        yield _column(column, image_of(column, rows.column_names), f"c{place}")
    if "base" in rows.column_names:
        for place, column in enumerate(schema.key):
            yield _column(column, "base", f"b{place}")
    for plain in (_DELETED, _MISSING, _NET, _PLACE):
        if plain.name in rows.column_names:
            yield _plain(plain)


def _column(column: Column, image: str, name: str) -> _Part:
    held = held_column(column)
    return _Part(held.loaded(name), lambda batch: held.arrays(values_of(batch, image, column)))


def _plain(column: LoadedColumn) -> _Part:
    return _Part([column], lambda batch: [batch.column(column.name).cast(column.arrow)])


def _refuse_unheld_values(batches: list[pa.RecordBatch], schema: TableSchema) -> None:
    for column in schema.columns:
        held = held_column(column)
        for batch in batches:
            if held.has_misfits(values_of(batch, image_of(column, batch.schema.names), column)):
                raise TableFailed(
                    schema.name,
                    NotHeld(
                        f"A value does not fit column {column.name} ({held.name}) in ClickHouse: it has no place for"
                        f" {held.unheld}.",
                        solution="Change the value, or leave the column out of the publication; then"
                        " run `penstock resync TABLE`.",
                    ),
                )
