"""SHA-256 of values, as lower-case hexadecimal; with a salt, HMAC-SHA-256. In Arrow, in Spark, and of a single text.

All three give the same: what is hashed is the text of the value, in UTF-8. Arrow has no such function; DuckDB has, and
takes and gives Arrow. The salt reaches DuckDB as a parameter and Spark as a row to join with, so that it stands in no
statement and in no plan, which would be printed with errors.
"""

# ruff: noqa: S608 -- statements are made of constants

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from schemas.pg_types.registry import column_type
from schemas.table import Column

_BLOCK = 64
_INNER, _OUTER = "penstock inner", "penstock outer"
_TEXTS: dict[str, tuple[str, Callable[[SparkColumn], SparkColumn], Callable[[Any], str]]] = {
    "string": ("v", lambda value: value, str),
    "int": ("cast(v as varchar)", lambda value: value.cast("string"), str),
    "long": ("cast(v as varchar)", lambda value: value.cast("string"), str),
    "boolean": ("cast(v as varchar)", lambda value: value.cast("string"), lambda value: str(value).lower()),
    "bytes": (
        r"'\x' || lower(hex(v))",
        lambda value: F.concat(F.lit(r"\x"), F.lower(F.hex(value))),
        lambda value: rf"\x{bytes(value).hex()}",
    ),
}
"""The text of a value as Avro carries it: in DuckDB, in Spark, in Python."""


def is_hashable(column: Column) -> bool:
    """Whether its values have one text. Dates, times and floats have several, arrays are read as structs."""
    return _carried_as(column) in _TEXTS


def _carried_as(column: Column) -> str:
    kind = column_type(column)
    match kind.avro:
        case str() as name if kind.element is None:
            return name
        case {"type": "string"}:  # uuid
            return "string"
        case _:
            return ""


class Hasher:
    """For one destination."""

    def __init__(self, salt: bytes) -> None:
        key = (salt if len(salt) <= _BLOCK else hashlib.sha256(salt).digest()).ljust(_BLOCK, b"\0")
        self._salt = salt
        self._inner, self._outer = (bytes(byte ^ pad for byte in key) for pad in (0x36, 0x5C))
        self._db: duckdb.DuckDBPyConnection | None = None

    def text(self, value: Any, column: Column) -> str:  # noqa: ANN401 -- any type of the type table
        """Of one value that is not null."""
        _, _, text = _TEXTS[_carried_as(column)]
        data = text(value).encode()
        return hmac.new(self._salt, data, "sha256").hexdigest() if self._salt else hashlib.sha256(data).hexdigest()

    def array(self, values: pa.Array, column: Column) -> pa.Array:
        """Of every value, in order; null stays null."""
        text, _, _ = _TEXTS[_carried_as(column)]
        hashed = "sha256($outer || unhex(sha256($inner || encode(t))))" if self._salt else "sha256(t)"
        given = {"inner": self._inner, "outer": self._outer} if self._salt else {}
        if self._db is None:
            self._db = duckdb.connect(config={"threads": 1})  # in order, and the other cores are Spark's
        with self._db.cursor() as db:
            db.register("given", pa.table({"v": values}))
            found = db.execute(f"select {hashed} as h from (select {text} as t from given)", given).to_arrow_table()
        made: pa.Array = found["h"].combine_chunks().cast(pa.string())
        return made

    def ready(self, rows: DataFrame) -> DataFrame:
        """The frame in which `column` can be used."""
        if not self._salt:
            return rows
        pads = pa.table({_INNER: [self._inner], _OUTER: [self._outer]})
        return rows.crossJoin(F.broadcast(rows.sparkSession.createDataFrame(pads)))

    def column(self, value: SparkColumn, column: Column) -> SparkColumn:
        _, text, _ = _TEXTS[_carried_as(column)]
        data = text(value).cast("binary")
        if not self._salt:
            return F.sha2(data, 256)
        inner, outer = F.col(f"`{_INNER}`"), F.col(f"`{_OUTER}`")
        return F.sha2(F.concat(outer, F.unhex(F.sha2(F.concat(inner, data), 256))), 256)
