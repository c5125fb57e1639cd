"""Rows to a staging table by COPY: Arrow to CSV in C++, nowhere a Python object for a row or a value.

A struct is staged as one column a field, an array as two: the items as a literal, and what no list can hold. NULL is
nothing between two commas, and every text is in quotes, so that an empty one is not NULL.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import errors, sql
from pyarrow import csv
from pyspark import TaskContext
from pyspark.sql import DataFrame

from apply_spark.destinations.postgres_types import is_array, literal_name, raw_type
from schemas.envelope import avro_name
from schemas.table import Column, TableSchema
from stores.patient_session import PatientSession

_STRUCTS = {"row": "c", "key": "k", "base": "b"}
"""Structs of a batch, and the letter that their staged columns begin with."""
_PLAIN = {"deleted": "boolean", "missing": "text", "net": "bigint"}
ATTEMPT = {"part": "bigint", "attempt": "bigint"}
"""Columns before all others where tasks of Spark write."""
_WRITE = csv.WriteOptions(include_header=False)
_AWAY = "08006"
"""The state of a connection that failed before the server could tell one."""


@dataclass(frozen=True)
class Staging:
    """The staging table of a batch: what its columns are, in the order in which they are written."""

    schema: TableSchema
    fields: tuple[str, ...]
    """The columns of the batch."""

    def definition(self, further: Mapping[str, str] = {}) -> sql.Composable:
        return sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind))
            for name, kind in (*further.items(), *self._columns())
        )

    def _columns(self) -> Iterator[tuple[str, str]]:
        for field in self.fields:
            if field in _PLAIN:
                yield field, _PLAIN[field]
                continue
            for name, column in staged_columns(self.schema, field):
                yield name, "text" if is_array(column) else raw_type(column)
                if is_array(column):
                    yield literal_name(name), "text"

    def lines(self, rows: pa.Table) -> pa.Table:
        """The rows as the CSV writer takes them: flat, and of types that it knows."""
        flat: list[pa.Array] = []
        for field in self.fields:
            whole = rows[field].combine_chunks()
            if field not in _STRUCTS:
                flat.append(_array_literal(whole) if pa.types.is_list(whole.type) else whole)
                continue
            for _, column in staged_columns(self.schema, field):
                value = pc.struct_field(whole, avro_name(column.name))
                if is_array(column):
                    flat += [_array_literal(pc.struct_field(value, 0)), pc.struct_field(value, 1)]
                else:
                    flat.append(_hex(value) if pa.types.is_binary(value.type) else value)
        return pa.table(flat, [str(number) for number in range(len(flat))])


def staged_columns(schema: TableSchema, struct: str) -> list[tuple[str, Column]]:
    """The columns of a struct, with their names in the staging table."""
    columns = schema.columns if struct == "row" else schema.key
    return [(f"{_STRUCTS[struct]}{number}", column) for number, column in enumerate(columns)]


def copy_in(session: psycopg.Connection, table: sql.Composable, lines: Iterable[pa.Table]) -> None:
    with session.cursor().copy(sql.SQL("copy {} from stdin (format csv)").format(table)) as copy:
        for each in lines:
            out = pa.BufferOutputStream()
            csv.write_csv(each, out, _WRITE)
            copy.write(memoryview(out.getvalue()))


def copy_in_from_executors(
    dsn: str, patience: float, table: sql.Composable, staging: Staging, rows: DataFrame
) -> tuple[tuple[int, int], ...]:
    """Every task of Spark appends its rows, in a transaction of its own, behind which task it is: one may be tried more
    than once, and write each time. The attempts that count. An error is told by its kind: its text may hold a value."""

    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None  # noqa: S101 -- Spark calls this in a task
        task = {"part": context.partitionId(), "attempt": context.taskAttemptId()}
        refused = ""
        try:
            with PatientSession.opened(dsn, patience) as session:
                copy_in(session, table, (_marked(staging.lines(pa.table(batch)), task) for batch in batches))
        except psycopg.Error as error:
            refused = error.sqlstate or _AWAY
        yield pa.RecordBatch.from_pylist([task | {"refused": refused}])

    done = rows.mapInArrow(stage, "part bigint, attempt bigint, refused string").collect()
    for row in done:
        if row.refused:
            raise errors.lookup(row.refused)
    return tuple((row.part, row.attempt) for row in done)


def _marked(lines: pa.Table, task: dict[str, int]) -> pa.Table:
    for place, (name, value) in enumerate(task.items()):
        lines = lines.add_column(place, name, pa.repeat(value, lines.num_rows))
    return lines


def _hex(values: pa.Array) -> pa.Array:
    """As Postgres reads bytea: the bytes of all values at once, since each becomes two digits."""
    filled = pc.fill_null(values.cast(pa.large_binary()), b"")
    _, offsets, data = filled.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[filled.offset : filled.offset + len(filled) + 1]
    digits = binascii.hexlify(memoryview(data or b"")[ends[0] : ends[-1]])
    texts = pa.LargeStringArray.from_buffers(len(filled), pa.py_buffer((ends - ends[0]) * 2), pa.py_buffer(digits))
    return _where_valid(values, _joined("\\x", texts))


def _array_literal(lists: pa.Array) -> pa.Array:
    items = lists.flatten()
    if pa.types.is_binary(items.type):
        items = _hex(items)
    texts = items.cast(pa.large_string())
    if not (pa.types.is_primitive(items.type)):
        for special in ("\\", '"'):
            texts = pc.replace_substring(texts, special, "\\" + special)
        texts = _joined('"', texts, '"')
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    joined = pc.binary_join(
        pa.ListArray.from_arrays(ends, pc.fill_null(texts, "NULL")), pa.scalar(",", pa.large_string())
    )
    return _where_valid(lists, _joined("{", joined, "}"))


def _joined(*parts: pa.Array | str) -> pa.Array:
    text = pa.large_string()
    return pc.binary_join_element_wise(
        *[pa.scalar(part, text) if isinstance(part, str) else part for part in parts], pa.scalar("", text)
    )


def _where_valid(values: pa.Array, texts: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_valid(values), texts, pa.scalar(None, pa.large_string()))
