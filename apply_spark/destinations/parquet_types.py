"""How each Postgres type lives in Parquet: a type of Arrow, and what it has no place for.

Parquet has every date and moment of Postgres but the infinite ones, and those of the last thirty years that 64 bits
do not reach. A reader may not: most stop at the year 9999.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from apply_spark.destinations.arrow_types import (
    NO_SUCH_LIST,
    PLAIN,
    TEXT,
    ArrowType,
    between,
    converted_lists,
    decimal,
    members,
)
from schemas.pg_types.dates import DATE_INFINITY, DATE_MINUS_INFINITY, TIMESTAMP_FIRST, TIMESTAMP_INFINITY
from schemas.pg_types.registry import column_type
from schemas.table import Column

_NO_SUCH_MOMENT = "an infinity, or a timestamp after 294247-01-10 04:00:54.775806"
_MOMENTS = between(TIMESTAMP_FIRST, TIMESTAMP_INFINITY - 1)
_TYPES = PLAIN | {
    "date": ArrowType(pa.date32(), None, between(DATE_MINUS_INFINITY + 1, DATE_INFINITY - 1), "an infinity"),
    "timestamp": ArrowType(pa.timestamp("us"), None, _MOMENTS, _NO_SUCH_MOMENT),
    "timestamptz": ArrowType(pa.timestamp("us", tz="UTC"), None, _MOMENTS, _NO_SUCH_MOMENT),
}


@dataclass(frozen=True)
class ParquetColumn:
    """A column of the log."""

    scalar: ArrowType
    is_list: bool

    @property
    def arrow(self) -> pa.DataType:
        return pa.list_(self.scalar.arrow) if self.is_list else self.scalar.arrow

    @property
    def unheld(self) -> str:
        if not self.is_list:
            return self.scalar.unheld
        return f"{NO_SUCH_LIST}, or with {self.scalar.unheld} in it" if self.scalar.unheld else NO_SUCH_LIST

    def converted(self, values: pa.Array) -> pa.Array:
        return converted_lists(members(values)[0], self.scalar) if self.is_list else self.scalar.converted(values)

    def has_misfits(self, values: pa.Array) -> bool:
        if not self.is_list:
            return self.scalar.has_misfits(values)
        lists, texts = members(values)
        return texts.null_count < len(texts) or self.scalar.has_misfits(lists.flatten())


def parquet_column(column: Column) -> ParquetColumn:
    known = column_type(column)
    element = known.element
    scalar = (element or known).name
    found = decimal(column.modifier) if scalar == "numeric" else _TYPES.get(scalar)
    return ParquetColumn(found or TEXT, is_list=element is not None)
