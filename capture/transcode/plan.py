"""A table schema in, what the compiled kernel needs out: a code for each column, and every constant byte of a record.

A column whose type has no code is written by `ColumnPlan.encode`, which is the reference conversion; so is every value
whose text is not the plain one that Postgres prints. The kernel is fast for what is usual; it never judges what is odd.
"""

from __future__ import annotations

import enum
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import fastavro

from capture.transcode.conversion import conversion, primitive
from schemas.envelope import CONNECTOR, VERSION, Op
from schemas.identifiers import Epoch, PipelineName, SchemaId
from schemas.pg_types.registry import TYPES, column_type
from schemas.table import Column, TableSchema
from schemas.wire import header

_NULL = b"\0"


class Code(enum.IntEnum):
    """How the kernel reads a column's text. The numbers stand in kernel.pyx as well."""

    OTHER = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    TEXT = 6
    BYTES = 7
    DATE = 8
    TIME = 9
    TIMESTAMP = 10


# By the parser, not by the oid: a type that comes to share a parser shares its code; one that gets another loses it.
_CODES = {
    (TYPES[16].parse, "boolean"): Code.BOOLEAN,
    (int, "int"): Code.INT,
    (int, "long"): Code.LONG,
    (float, "float"): Code.FLOAT,
    (float, "double"): Code.DOUBLE,
    (str, "string"): Code.TEXT,
    (TYPES[17].parse, "bytes"): Code.BYTES,
    (TYPES[1082].parse, "int"): Code.DATE,
    (TYPES[1083].parse, "long"): Code.TIME,
    (TYPES[1114].parse, "long"): Code.TIMESTAMP,
}


@dataclass(frozen=True)
class ColumnPlan:
    """One column. `encode` gives the bytes of its union for a text, or raises ValueNotCarried."""

    code: Code
    key: bool
    name: bytes
    """As an Avro string, for the list of unchanged columns."""
    encode: Callable[[bytes], bytes]


@dataclass(frozen=True)
class TablePlan:
    """The columns, and the constant bytes between what varies, in the order of the envelope."""

    columns: tuple[ColumnPlan, ...]
    head: bytes
    """The header of the wire format."""
    key_head: bytes | None
    source_head: bytes
    """version, connector, name"""
    source_database: bytes
    """db, sequence"""
    source_table: bytes
    """schema, table"""
    source_origin: bytes
    """xmin, origin, origin_lsn"""
    source_tail: bytes
    """epoch, and the envelope's transaction"""
    ops: dict[Op, bytes]


def table_plan(
    pipeline: PipelineName,
    database: str,
    table: TableSchema,
    ids: tuple[SchemaId, SchemaId | None],
    epoch: Epoch,
) -> TablePlan:
    value_id, key_id = ids
    return TablePlan(
        columns=tuple(_column_plan(column) for column in table.columns),
        head=header(value_id),
        key_head=header(key_id) if key_id is not None else None,
        source_head=_encode("string", VERSION) + _encode("string", CONNECTOR) + _encode("string", pipeline),
        source_database=_encode("string", database) + _NULL,
        source_table=_encode("string", table.name.schema) + _encode("string", table.name.name),
        source_origin=_NULL * 3,
        source_tail=_encode("long", epoch) + _NULL,
        ops={op: _encode("string", op.value) for op in Op},
    )


def _column_plan(column: Column) -> ColumnPlan:
    known = column_type(column)
    code = _CODES.get((known.parse, primitive(known.avro) or ""), Code.OTHER)
    convert = conversion(column)
    schema = fastavro.parse_schema(known.branches)

    def encode(raw: bytes) -> bytes:
        return _encode(schema, convert(raw))

    return ColumnPlan(code, column.key, _encode("string", column.name), encode)


def _encode(schema: str | list[Any] | dict[str, Any], value: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()
