"""The type table in, docs/reference/types.md out: `python -m console.type_reference`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from apply_spark.destinations.clickhouse_types import HeldColumn, held_column
from apply_spark.destinations.duckdb_types import DuckDbType, duckdb_type
from apply_spark.destinations.spark_types import SparkType, spark_type
from schemas.envelope import plain
from schemas.pg_types.pg_type import AvroType
from schemas.pg_types.registry import SCALARS, pg_type
from schemas.table import Column

TARGET = Path(__file__).parent.parent / "docs" / "reference" / "types.md"
_HEAD = """\
# Types

<!-- Made by `python -m console.type_reference` from the type table; do not edit. -->

Every value of every type arrives as it was, or its table stops with a reason and a solution. The same row of this table
serves copy and stream, the compiled kernel and the reference path, Avro, Spark and each destination.

In Avro a column is a union of `null` and the type below. Apply reads it without the logical type, so Spark has plain
numbers and text. "Text" is what Postgres prints under `DateStyle = ISO`, `IntervalStyle = postgres`, `TimeZone = UTC`,
`bytea_output = hex`, `lc_monetary = C` and `search_path = pg_catalog`; every session that reads rows sets these.

## Scalar types

"""
_ARRAYS = """
The types of Delta and Iceberg have the names of Spark. Iceberg has no `smallint`: it is an `int` there.

## Arrays

An array of any type is `["null", {"type": "array", "items": ["null", T]}, "string"]`:

| value | in Avro | in Spark | in DuckDB, Delta, Iceberg | in ClickHouse |
|---|---|---|---|---|
| one dimension from index 1 on, with NULLs, or empty | the array | `member0` of a struct | `T[]`, `array<T>` | a list |
| more dimensions, other bounds (`[0:1]={1,2}`) | the literal, as string | `member1` | refused: the table stops | text |

In ClickHouse, where an `Array` cannot be NULL, it is a `Variant(Array(Nullable(T)), String)`.

The items of an array of a type that is not in the table above (an enum, a composite) are text.

## Types that are not in the table

| type | how it travels |
|---|---|
| domain | as its base type, with its precision; over a domain or an array, and in an array, too |
| enum | text: the label |
| composite | text: `(1,"a b",)` |
| range and multirange that a user made | text |
| extension types (`hstore`, `citext`, pgvector, PostGIS, all others) | text, as the type prints it |

The name of such a type, with its schema, is in the table schema that travels with the Avro schema.

## What DuckDB cannot hold

Such a value stops its table. `penstock status` names the column; change the value, or leave the column out of the
publication, then run `penstock resync TABLE`.

| DuckDB type | has no place for |
|---|---|
"""
_LAKES = """
## What Delta and Iceberg cannot hold

| type | has no place for |
|---|---|
"""
_CLICKHOUSE = """
## What ClickHouse cannot hold

| ClickHouse type | has no place for |
|---|---|
"""


def reference() -> str:
    """The whole page."""
    unheld = ["".join(_unheld(held_type)) for held_type in (duckdb_type, spark_type, _in_a_key)]
    return _HEAD + "".join(_scalars()) + _ARRAYS + unheld[0] + _LAKES + unheld[1] + _CLICKHOUSE + unheld[2]


def _scalars() -> Iterator[str]:
    yield "| Postgres | Avro | Spark | DuckDB | Delta, Iceberg | ClickHouse | notes |\n|---|---|---|---|---|---|---|\n"
    for known in (*SCALARS, pg_type(0)):
        column = Column("c", known.oid, known.name)
        types = [_spark(known.avro), duckdb_type(column).name, spark_type(column).name, _in_a_key(column).name]
        yield f"| `{known.name}` | {_avro(known.avro)} | `{'` | `'.join(types)}` | {known.note} |\n"


def _in_a_key(column: Column) -> HeldColumn:
    """Without the `Nullable` that every other column of a mirror in ClickHouse has."""
    return held_column(replace(column, key=True))


def _unheld(held_type: Callable[[Column], DuckDbType | SparkType | HeldColumn]) -> Iterator[str]:
    numeric = Column("c", 1700, "numeric", (10 << 16 | 2) + 4)
    types = [held_type(numeric), *(held_type(Column("c", known.oid, known.name)) for known in SCALARS)]
    yield from (f"| `{held.name}` | {held.unheld} |\n" for held in types if held.unheld)
    array = held_type(Column("c", 1009, "text[]"))
    where = "any array in a key" if isinstance(array, HeldColumn) else "any array"
    yield f"| {where} | {array.unheld} |\n"


def _avro(avro: AvroType) -> str:
    return f"`{avro}`" if isinstance(avro, str) else f"`{json.dumps(avro)}`"


def _spark(avro: AvroType) -> str:
    return {"long": "bigint", "bytes": "binary"}.get(str(plain(avro)), str(plain(avro)))


if __name__ == "__main__":
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(reference(), encoding="utf-8")
