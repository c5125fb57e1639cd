"""How each column lives in Postgres again: the type it had, and SQL that makes its value from Avro's plain one.

Types of Postgres itself have the same oid everywhere, so the destination names them by itself. A type that somebody
made (an enum, an extension's) may not be there, and what names an object of the source (regclass) has none to name:
those stay text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from psycopg import sql

from schemas.pg_types.dates import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    TIMESTAMP_FIRST,
    TIMESTAMP_INFINITY,
    TIMESTAMP_MINUS_INFINITY,
)
from schemas.pg_types.pg_type import AvroType
from schemas.pg_types.registry import TYPES, column_type
from schemas.table import Column

_TEXT, _TEXTS = 25, 1009
_DAY = 86_400_000_000
_TURN = f"{TIMESTAMP_INFINITY - TIMESTAMP_MINUS_INFINITY - 1}::numeric"
"""Moments beyond 64 bits since 1970 stand so much lower."""
_RAW = {
    "boolean": "boolean",
    "int": "integer",
    "long": "bigint",
    "float": "real",
    "double": "double precision",
    "bytes": "bytea",
    "string": "text",
}

_NO_EQUALITY = {"json", "xml", "jsonpath", "point", "lseg", "path", "box", "polygon", "line", "circle"}
_LETTERS = {25, 1009, 1043, 1015, 1042, 1014, 19, 1003}
"""text, varchar, char and name, and arrays of these."""

Expression = Callable[[sql.Composable], sql.Composable]


class HeldType(NamedTuple):
    """The type of a column at the destination, as `format_type` takes it."""

    oid: int
    modifier: int


def held_type(column: Column) -> HeldType:
    known = TYPES.get(column.type_oid)
    if known is None:
        return HeldType(_TEXT if column.delimiter is None else _TEXTS, -1)
    if (known.element or known).name.startswith(("reg", "aclitem")):
        return HeldType(_TEXT if known.element is None else _TEXTS, -1)
    return HeldType(column.type_oid, column.modifier)


def raw_type(column: Column) -> str:
    """In which the plain value is staged; of an array, its items."""
    known = column_type(column)
    return _RAW[_primitive((known.element or known).avro)]


def is_array(column: Column) -> bool:
    return column_type(column).element is not None


def converted(column: Column, staged: str, held: str) -> sql.Composable:
    """SQL for the value of a column, from the staged columns of that name; `held` is the type it gets."""
    value = sql.Identifier(staged)
    known = column_type(column)
    target = sql.SQL(held)  # as the destination itself wrote it
    item = _CONVERSIONS.get((known.element or known).name)
    if known.element is None:
        return sql.SQL("cast({} as {})").format(item(value) if item else value, target)
    items: sql.Composable = sql.SQL("{}::{}[]").format(value, sql.SQL(raw_type(column)))
    if item is not None:
        items = sql.SQL(
            "array(select {} from unnest({}) with ordinality as items (item, place) order by place)"
        ).format(item(sql.Identifier("item")), items)
    literal = sql.Identifier(literal_name(staged))
    return sql.SQL(
        "case when {literal} is not null then cast({literal} as {target})"
        " when {value} is not null then cast({items} as {target}) end"
    ).format(literal=literal, value=value, items=items, target=target)


def literal_name(staged: str) -> str:
    """Where the literal of an array is staged that no list can hold."""
    return f"{staged}_literal"


def same(columns: Iterable[tuple[Column, sql.Composable]]) -> sql.Composable:
    """The values as one record; two are equal where every value is, NULLs included."""
    return sql.SQL("row({})").format(sql.SQL(", ").join(_comparable(column, value) for column, value in columns))


def _comparable(column: Column, value: sql.Composable) -> sql.Composable:
    """By bytes where letters are compared; by its text where `=` of Postgres does not say that two values are the same:
    json has none, and that of a box compares areas."""
    known = column_type(column)
    if (known.element or known).name in _NO_EQUALITY:
        return sql.SQL('{}::text collate "C"').format(value)
    return sql.SQL('{} collate "C"').format(value) if held_type(column).oid in _LETTERS else value


def _primitive(avro: AvroType) -> str:
    return str(avro["type"]) if isinstance(avro, dict) else avro


def _date(value: sql.Composable) -> sql.Composable:
    return sql.SQL(
        f"case {{value}} when {DATE_INFINITY} then 'infinity'::date when {DATE_MINUS_INFINITY} then '-infinity'::date"
        " else date '1970-01-01' + {value} end"
    ).format(value=value)


def _time(value: sql.Composable) -> sql.Composable:
    """By its text: 24:00:00 is a time of its own, which no sum gives."""
    return sql.SQL("cast(cast({} * interval '1 microsecond' as text) as time)").format(value)


def _moment(kind: str) -> Expression:
    """Days and the rest of the day apart: a number times an interval is computed in floating point."""
    far = f"({{v}} + {_TURN})"
    template = sql.SQL(
        f"case when {{v}} = {TIMESTAMP_INFINITY} then 'infinity'::{kind}"
        f" when {{v}} = {TIMESTAMP_MINUS_INFINITY} then '-infinity'::{kind}"
        f" when {{v}} < {TIMESTAMP_FIRST} then {_since_1970(kind, f'div({far}, {_DAY})', f'mod({far}, {_DAY})')}"
        f" else {_since_1970(kind, f'{{v}} / {_DAY}', f'{{v}} % {_DAY}')} end"
    )
    return lambda value: template.format(v=value)


def _since_1970(kind: str, days: str, rest: str) -> str:
    return (
        f"{kind} '1970-01-01 00:00:00+00' + ({days})::integer * interval '1 day' + ({rest}) * interval '1 microsecond'"
    )


_CONVERSIONS: dict[str, Expression] = {
    "date": _date,
    "time": _time,
    "timestamp": _moment("timestamp"),
    "timestamptz": _moment("timestamptz"),
}
