"""The record on a change or copy topic: Debezium's envelope around a table's row, plus what makes it exact.

Debezium lacks, and we add: `source.commit_lsn` and `source.ordinal` (the position), `source.epoch`, and `unchanged`
(names of columns whose TOASTed value the server did not send). Every column is nullable with default null, so any two
versions of a table resolve. An array has a third branch, for what no list can hold.
"""

from __future__ import annotations

import enum
import re
from typing import Any

from schemas.identifiers import PipelineName
from schemas.pg_types.pg_type import AvroType
from schemas.pg_types.registry import column_type
from schemas.table import Column, TableSchema

VERSION = "0.1.0"
CONNECTOR = "postgresql"

# An underscore is escaped where it would read as the start of an escape, the one of a forbidden character included.
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_]|^[0-9]|_(?=x[0-9a-f]+[^A-Za-z0-9])")


class Op(enum.Enum):
    """What happened to a row; the letters are Debezium's."""

    CREATE = "c"
    UPDATE = "u"
    DELETE = "d"
    READ = "r"
    TRUNCATE = "t"


def avro_name(name: str) -> str:
    """A Postgres name as an Avro name: what Avro forbids becomes `_x<hex>_`; two names never become one."""
    return _FORBIDDEN.sub(lambda found: f"_x{ord(found[0]):x}_", name)


def envelope_schema(pipeline: PipelineName, table: TableSchema) -> dict[str, Any]:
    """The writer's schema of a table's change and copy topics."""
    namespace = ".".join(avro_name(part) for part in (pipeline, *table.name))
    row = _row("Value", table.columns)
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": namespace,
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", f"{namespace}.Value"], "default": None},
            {"name": "source", "type": _SOURCE},
            {"name": "transaction", "type": ["null", _TRANSACTION], "default": None},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
            {"name": "ts_us", "type": ["null", "long"], "default": None},
            {"name": "ts_ns", "type": ["null", "long"], "default": None},
            {"name": "unchanged", "type": {"type": "array", "items": "string"}, "default": []},
        ],
    }


def reader_schema(writer: dict[str, Any]) -> dict[str, Any]:
    """What apply reads of a change: rows as plain numbers and text, position and time, and nothing else.

    Logical types are left out, so that no calendar rule of a JVM touches a value on its way."""
    source = {**_SOURCE, "fields": [_read_as(name, "long") for name in ("commit_lsn", "ordinal", "epoch", "ts_us")]}
    return {
        **writer,
        "fields": [
            _read_as("before", _plain_row(writer)),
            _read_as("after", f"{writer['namespace']}.Value"),
            _read_as("source", source),
            _read_as("op", "string"),
            _read_as("unchanged", {"type": "array", "items": ["null", "string"]}),
        ],
    }


def _read_as(name: str, avro: AvroType) -> dict[str, Any]:
    """All is nullable, though it is there: Arrow wants it so of a record that stands among records of other tables."""
    return {"name": name, "type": ["null", avro]}


def copy_reader_schema(writer: dict[str, Any]) -> dict[str, Any]:
    """What apply reads of a copied row: the row."""
    return {**writer, "fields": [_read_as("after", _plain_row(writer))]}


def moment_reader_schema(writer: dict[str, Any]) -> dict[str, Any]:
    """What tells when a change was committed, in order and in time."""
    source = {**_SOURCE, "fields": [_read_as(name, "long") for name in ("commit_lsn", "epoch", "ts_us")]}
    return {**writer, "fields": [_read_as("source", source)]}


def _plain_row(writer: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = writer["fields"][0]["type"][1]
    return {**row, "fields": [{**field, "type": [plain(each) for each in field["type"]]} for field in row["fields"]]}


def key_schema(pipeline: PipelineName, table: TableSchema) -> dict[str, Any]:
    namespace = ".".join(avro_name(part) for part in (pipeline, *table.name))
    return _row("Key", table.key) | {"namespace": namespace}


def _row(name: str, columns: tuple[Column, ...]) -> dict[str, Any]:
    fields = [
        {"name": avro_name(column.name), "type": column_type(column).branches, "default": None} for column in columns
    ]
    return {"type": "record", "name": name, "fields": fields}


def plain(avro: AvroType) -> AvroType:
    """The same type without logical meaning, inside arrays too."""
    match avro:
        case {"logicalType": _, "type": inner}:
            return str(inner)
        case {"type": "array", "items": [null, item]}:
            return {"type": "array", "items": [null, plain(item)]}
        case _:
            return avro


def _optional(name: str, avro: str) -> dict[str, Any]:
    return {"name": name, "type": ["null", avro], "default": None}


_SOURCE: dict[str, Any] = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium.connector.postgresql",
    "fields": [
        {"name": "version", "type": "string"},
        {"name": "connector", "type": "string"},
        {"name": "name", "type": "string"},
        {"name": "ts_ms", "type": "long"},
        {"name": "snapshot", "type": ["string", "null"], "default": "false"},
        {"name": "db", "type": "string"},
        _optional("sequence", "string"),
        _optional("ts_us", "long"),
        _optional("ts_ns", "long"),
        {"name": "schema", "type": "string"},
        {"name": "table", "type": "string"},
        _optional("txId", "long"),
        _optional("lsn", "long"),
        _optional("xmin", "long"),
        _optional("origin", "string"),
        _optional("origin_lsn", "long"),
        {"name": "commit_lsn", "type": "long"},
        {"name": "ordinal", "type": "long"},
        {"name": "epoch", "type": "long"},
    ],
}

_TRANSACTION: dict[str, Any] = {
    "type": "record",
    "name": "block",
    "namespace": "event",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "total_order", "type": "long"},
        {"name": "data_collection_order", "type": "long"},
    ],
}
