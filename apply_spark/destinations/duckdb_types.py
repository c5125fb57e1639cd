"""How each Postgres type lives in DuckDB: a column type, and SQL that turns Avro's plain value into it.

What DuckDB cannot hold raises an error there; nothing is rounded. DuckDB knows `infinity` for dates and timestamps,
`24:00:00`, and years far beyond 9999. A numeric without precision, or with more than 38 digits, stays text: exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from schemas.envelope import avro_name
from schemas.pg_types.dates import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    TIMESTAMP_FIRST,
    TIMESTAMP_INFINITY,
    TIMESTAMP_MINUS_INFINITY,
)
from schemas.pg_types.registry import column_type
from schemas.table import Column, TableSchema

_MIDNIGHT_AFTER = 86_400_000_000
_MOST_DIGITS = 38
_NUMERIC = "numeric"


class DuckDbType(NamedTuple):
    """A column type, the expression for a value named by SQL text, and what values it has no place for."""

    name: str
    convert: Callable[[str], str]
    unheld: str = ""


_NO_SUCH_MOMENT = "a timestamp after 294247-01-10 04:00:54.775806"
_NO_SUCH_DECIMAL = "NaN or an infinity"
_NO_SUCH_LIST = "an array of more than one dimension, or one that does not begin at index 1"


def _cast(name: str) -> DuckDbType:
    return DuckDbType(name, lambda value: f"cast({value} as {name})")


def _date(value: str) -> str:
    return (
        f"case {value} when {DATE_INFINITY} then 'infinity'::date when {DATE_MINUS_INFINITY} then '-infinity'::date"
        f" else date '1970-01-01' + {value} end"
    )


def _time(value: str) -> str:
    return (
        f"case {value} when {_MIDNIGHT_AFTER} then '24:00:00'::time else time '00:00:00' + to_microseconds({value}) end"
    )


def _moment(kind: str) -> DuckDbType:
    """Not by a cast from one kind to the other: that is ten times slower, and from the year 287396 on not exact."""

    def convert(value: str) -> str:
        return (
            f"case when {value} = {TIMESTAMP_INFINITY} then 'infinity'::{kind}"
            f" when {value} = {TIMESTAMP_MINUS_INFINITY} then '-infinity'::{kind}"
            f" when {value} < {TIMESTAMP_FIRST} then error('{_NO_SUCH_MOMENT}') else make_{kind}({value}) end"
        )

    return DuckDbType(kind, convert, _NO_SUCH_MOMENT)


_TYPES = {
    "bool": _cast("boolean"),
    "int2": _cast("smallint"),
    "int4": _cast("integer"),
    "int8": _cast("bigint"),
    "oid": _cast("uinteger"),
    "float4": _cast("real"),
    "float8": _cast("double"),
    "bytea": _cast("blob"),
    "date": DuckDbType("date", _date),
    "time": DuckDbType("time", _time),
    "timestamp": _moment("timestamp"),
    "timestamptz": _moment("timestamptz"),
    "uuid": _cast("uuid"),
    "json": _cast("json"),
    "jsonb": _cast("json"),
}
_TEXT = _cast("varchar")


def duckdb_type(column: Column) -> DuckDbType:
    known = column_type(column)
    if known.element is None:
        return _scalar(known.name, column.modifier)
    inner = _scalar(known.element.name, column.modifier)

    def convert(value: str) -> str:
        """Of a struct, as Spark reads a union: the list, or else the literal that no list can hold."""
        items = f"list_transform({value}.member0, lambda item: {inner.convert('item')})"
        return f"case when {value}.member1 is not null then error('{_NO_SUCH_LIST}') else {items} end"

    unheld = f"{_NO_SUCH_LIST}, or with {inner.unheld} in it" if inner.unheld else _NO_SUCH_LIST
    return DuckDbType(f"{inner.name}[]", convert, unheld)


def _scalar(name: str, modifier: int) -> DuckDbType:
    return _numeric(modifier) if name == _NUMERIC else _TYPES.get(name, _TEXT)


def _numeric(modifier: int) -> DuckDbType:
    """numeric(p, s) as decimal(p, s) where DuckDB has it; the modifier holds both, as pg_attribute.atttypmod does."""
    digits, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
    fits = modifier >= 0 and digits <= _MOST_DIGITS and scale <= digits
    return _cast(f"decimal({digits}, {scale})")._replace(unheld=_NO_SUCH_DECIMAL) if fits else _TEXT


def quoted(*names: str) -> str:
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def converted(column: Column, image: str) -> str:
    convert: Callable[[str], str] = duckdb_type(column).convert
    return convert(f"{image}.{quoted(avro_name(column.name))}")


def converted_row(schema: TableSchema) -> str:
    return ", ".join(f"{converted(column, 'row')} as c{index}" for index, column in enumerate(schema.columns))
