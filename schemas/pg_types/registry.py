"""Every known type by its oid; what is not known travels as its text."""

from __future__ import annotations

from schemas.pg_types.arrays import array_of
from schemas.pg_types.binary import BINARIES
from schemas.pg_types.dates import DATES
from schemas.pg_types.numbers import NUMBERS
from schemas.pg_types.pg_type import PgType
from schemas.pg_types.text import TEXTS
from schemas.table import Column

SCALARS = (*NUMBERS, *TEXTS, *BINARIES, *DATES)
_ARRAYS = tuple(array_of(element, element.array_oid) for element in SCALARS if element.array_oid is not None)

TYPES: dict[int, PgType] = {known.oid: known for known in (*SCALARS, *_ARRAYS)}


def pg_type(oid: int, delimiter: str | None = None) -> PgType:
    """The row of the type table for an oid: never absent, since every value has a text.

    A `delimiter` says that a type that is not known is an array, and what stands between its items."""
    known = TYPES.get(oid)
    if known is not None:
        return known
    if delimiter is None:
        return PgType(oid, None, "other", str, "string")
    return array_of(PgType(0, oid, "other", str, "string", delimiter=delimiter), oid)


def column_type(column: Column) -> PgType:
    return pg_type(column.type_oid, column.delimiter)
