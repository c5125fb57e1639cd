"""Every known type by its oid; what is not known travels as its text."""

from __future__ import annotations

from schemas.pg_types.arrays import array_of
from schemas.pg_types.binary import BINARIES
from schemas.pg_types.dates import DATES
from schemas.pg_types.numbers import NUMBERS
from schemas.pg_types.pg_type import PgType
from schemas.pg_types.text import TEXTS

_SCALARS = (*NUMBERS, *TEXTS, *BINARIES, *DATES)
_ARRAYS = tuple(array_of(element, element.array_oid) for element in _SCALARS if element.array_oid is not None)

TYPES: dict[int, PgType] = {known.oid: known for known in (*_SCALARS, *_ARRAYS)}
ARRAY_ELEMENT: dict[int, PgType] = {known.array_oid: known for known in _SCALARS if known.array_oid is not None}


def pg_type(oid: int) -> PgType:
    """The row of the type table for an oid: never absent, since every value has a text."""
    return TYPES.get(oid) or PgType(oid, None, "other", str, "string")
