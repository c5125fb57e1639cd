"""The server's text of one column to the value that its Avro type holds: the one conversion behind both paths.

A value that the type cannot carry raises ValueNotCarried, which names the column and never the value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from schemas.pg_types.pg_type import AvroType, ValueNotCarried
from schemas.pg_types.registry import column_type
from schemas.table import Column

Conversion: TypeAlias = Callable[[bytes], Any]

_RANGES = {"int": range(-(2**31), 2**31), "long": range(-(2**63), 2**63)}


def conversion(column: Column) -> Conversion:
    known = column_type(column)
    parse, fits = known.parse, _fits(known.avro)

    def convert(raw: bytes) -> Any:  # noqa: ANN401 -- any type of the type table
        try:
            value = parse(raw.decode("utf-8"))
        except ValueError:
            raise _not_of_its_type(column) from None
        if fits is not None and not fits(value):
            raise _not_of_its_type(column)
        return value

    return convert


def primitive(avro: AvroType) -> str | None:
    """The Avro type without logical meaning; None for an array."""
    match avro:
        case str():
            return avro
        case {"type": str(inner), "logicalType": _}:
            return inner
        case _:
            return None


def _not_of_its_type(column: Column) -> ValueNotCarried:
    return ValueNotCarried(
        f"Column {column.name} has a value that is not valid text of its type.",
        solution="Correct the row, or leave the column out of the publication; then resync the table.",
    )


def _fits(avro: AvroType) -> Callable[[Any], bool] | None:
    """Whether a value is within its Avro type; None where every value is."""
    match avro:
        case {"type": "array", "items": [_, item]}:
            item_fits = _fits(item)
            if item_fits is None:
                return None
            return lambda items: isinstance(items, str) or all(each is None or item_fits(each) for each in items)
        case _:
            limits = _RANGES.get(primitive(avro) or "")
            return None if limits is None else lambda value: value in limits
