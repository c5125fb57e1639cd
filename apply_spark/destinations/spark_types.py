"""How each Postgres type lives in a table that Spark writes, of Delta or of Iceberg: a column type, and Spark's
expressions for its value from Avro's plain one.

Spark has no infinite dates, no years outside 1 to 9999 that every reader knows, no time of day, no unsigned numbers: a
time is text, an oid a bigint, and what has no place is found by `fits` before anything is written. A numeric without
precision, or with more than 38 digits, stays text: exact. Iceberg has no smallint, and makes an int of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from pyspark.sql import Column as Value
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from schemas.envelope import avro_name
from schemas.pg_types.registry import column_type
from schemas.table import Column

Expression: TypeAlias = Callable[[Value], Value]

_MOST_DIGITS = 38
_DAYS = (-719_162, 2_932_896)
_MICROSECONDS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
"""From the first day, and moment, of the year 1 to the last of 9999."""
_NO_SUCH_DATE = "an infinity, or a year outside 1 to 9999"
_NO_SUCH_DECIMAL = "NaN or an infinity"
_NO_SUCH_LIST = "an array of more than one dimension, or one that does not begin at index 1"


class SparkType(NamedTuple):
    """A column type, the expression for a value, whether a value has a place there, and what has none."""

    name: str
    convert: Expression
    fits: Expression | None = None
    unheld: str = ""


def _cast(name: str) -> SparkType:
    return SparkType(name, lambda value: value.cast(name))


def _between(bounds: tuple[int, int]) -> Expression:
    return lambda value: value.between(*bounds)


def _time(value: Value) -> Value:
    """As Postgres prints it; 24:00:00 is a time of its own."""
    seconds, fraction = F.floor(value / 1_000_000), value % 1_000_000
    clock = [F.floor(seconds / 3600), F.floor(seconds / 60) % 60, seconds % 60]
    digits = F.regexp_replace(F.lpad(fraction.cast("string"), 6, "0"), "0+$", "")
    return F.concat(
        F.concat_ws(":", *[F.lpad(part.cast("string"), 2, "0") for part in clock]),
        F.when(fraction == 0, "").otherwise(F.concat(F.lit("."), digits)),
    )


_TYPES = {
    "bool": _cast("boolean"),
    "int2": _cast("smallint"),
    "int4": _cast("int"),
    "int8": _cast("bigint"),
    "oid": _cast("bigint"),
    "float4": _cast("float"),
    "float8": _cast("double"),
    "bytea": _cast("binary"),
    "date": SparkType("date", F.date_from_unix_date, _between(_DAYS), _NO_SUCH_DATE),
    "time": SparkType("string", _time),
    "timestamp": SparkType(
        "timestamp_ntz",
        lambda value: F.timestamp_micros(value).cast("timestamp_ntz"),  # in UTC, which is the zone of the session
        _between(_MICROSECONDS),
        _NO_SUCH_DATE,
    ),
    "timestamptz": SparkType("timestamp", F.timestamp_micros, _between(_MICROSECONDS), _NO_SUCH_DATE),
}
_TEXT = _cast("string")


def spark_type(column: Column) -> SparkType:
    known = column_type(column)
    if known.element is None:
        return _scalar(known.name, column.modifier)
    inner = _scalar(known.element.name, column.modifier)

    def convert(value: Value) -> Value:
        """Of a struct, as Spark reads a union: the list, or else the literal that no list can hold."""
        return F.transform(value["member0"], inner.convert)

    def fits(value: Value) -> Value:
        is_list = value["member1"].isNull()
        if inner.fits is None:
            return is_list
        return is_list & F.forall(value["member0"], _or_null(inner.fits))

    unheld = f"{_NO_SUCH_LIST}, or with {inner.unheld} in it" if inner.unheld else _NO_SUCH_LIST
    return SparkType(f"array<{inner.name}>", convert, fits, unheld)


def _or_null(fits: Expression) -> Expression:
    return lambda value: value.isNull() | fits(value)


def _scalar(name: str, modifier: int) -> SparkType:
    return _numeric(modifier) if name == "numeric" else _TYPES.get(name, _TEXT)


def _numeric(modifier: int) -> SparkType:
    """numeric(p, s) as decimal(p, s) where Spark has it; the modifier holds both, as pg_attribute.atttypmod does."""
    digits, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
    if modifier < 0 or digits > _MOST_DIGITS or scale > digits:
        return _TEXT
    name = f"decimal({digits}, {scale})"
    return SparkType(
        name,
        lambda value: value.try_cast(name),
        lambda value: value.try_cast(name).isNotNull(),
        _NO_SUCH_DECIMAL,
    )


def converted(column: Column, image: str) -> Value:
    """The value of a column in a struct of a batch; NULL where it has no place, which `misfit` has found before."""
    held, value = spark_type(column), F.col(image)[avro_name(column.name)]
    return held.convert(value) if held.fits is None else F.when(held.fits(value), held.convert(value))


def misfit(column: Column, image: str) -> Value | None:
    """Whether the value of a column has no place. None: every value has."""
    held, value = spark_type(column), F.col(image)[avro_name(column.name)]
    return None if held.fits is None else value.isNotNull() & ~held.fits(value)


def quoted(*names: str) -> str:
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)
