"""The values of a batch, Avro's plain ones, to values of Arrow's own types: what destinations that take Arrow share.

What a destination has no place for is found by `has_misfits` before anything is written; nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.envelope import avro_name
from schemas.table import Column

Convert: TypeAlias = Callable[[pa.Array], pa.Array]

_SECOND = 1_000_000
_DIGITS_OF_128_BITS, MOST_DIGITS = 38, 76
NO_SUCH_DECIMAL = "NaN or an infinity"
NO_SUCH_LIST = "an array of more than one dimension, or one that does not begin at index 1"


class ArrowType(NamedTuple):
    """A type of Arrow, how to make its values, which have a place, and what has none."""

    arrow: pa.DataType
    convert: Convert | None = None
    fits: Convert | None = None
    unheld: str = ""

    def converted(self, values: pa.Array) -> pa.Array:
        return self.convert(values) if self.convert is not None else values.cast(self.arrow)

    def has_misfits(self, values: pa.Array) -> bool:
        return self.fits is not None and pc.all(self.fits(values)).as_py() is False


def between(first: int, last: int) -> Convert:
    return lambda values: pc.and_(pc.greater_equal(values, first), pc.less_equal(values, last))


def _time(values: pa.Array) -> pa.Array:
    """As Postgres prints it; 24:00:00 is a time of its own."""
    seconds = pc.divide(values, _SECOND)
    fraction = pc.subtract(values, pc.multiply(seconds, _SECOND))
    minutes = pc.divide(seconds, 60)
    hours = pc.divide(minutes, 60)
    clock = [
        hours,
        pc.subtract(minutes, pc.multiply(hours, 60)),
        pc.subtract(seconds, pc.multiply(minutes, 60)),
    ]
    text = pc.binary_join_element_wise(*[pc.utf8_lpad(part.cast(pa.string()), 2, "0") for part in clock], ":")
    digits = pc.utf8_rtrim(pc.utf8_lpad(fraction.cast(pa.string()), 6, "0"), "0")
    return pc.if_else(pc.equal(fraction, 0), text, pc.binary_join_element_wise(text, digits, "."))


TEXT = ArrowType(pa.string())
PLAIN = {
    "bool": ArrowType(pa.bool_()),
    "int2": ArrowType(pa.int16()),
    "int4": ArrowType(pa.int32()),
    "int8": ArrowType(pa.int64()),
    "oid": ArrowType(pa.uint32()),
    "float4": ArrowType(pa.float32()),
    "float8": ArrowType(pa.float64()),
    "bytea": ArrowType(pa.binary()),
    "time": ArrowType(pa.string(), _time),
}
"""Types whose every value has a place. All others are text, but for dates, moments and decimals."""


def _is_finite(values: pa.Array) -> pa.Array:
    return pc.invert(pc.is_in(values, value_set=pa.array(["NaN", "Infinity", "-Infinity"])))


def decimal(modifier: int) -> ArrowType | None:
    """Of numeric(p, s); None: without precision, or with more digits than Arrow has. The modifier holds both, as
    pg_attribute.atttypmod does."""
    digits, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
    if modifier < 0 or digits > MOST_DIGITS or scale > digits:
        return None
    kind = pa.decimal128 if digits <= _DIGITS_OF_128_BITS else pa.decimal256
    return ArrowType(kind(digits, scale), None, _is_finite, NO_SUCH_DECIMAL)


def image_of(column: Column, names: list[str]) -> str:
    """Which struct of a batch with these columns has the value of a column: a row that is deleted has but its key."""
    return "key" if column.key and "key" in names else "row"


def values_of(batch: pa.RecordBatch, image: str, column: Column) -> pa.Array:
    images = batch.column(image)
    return pc.struct_field(images, [images.type.get_field_index(avro_name(column.name))])


def members(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """An array is a struct, as Spark reads a union: the list, or else the literal that no list can hold."""
    lists, texts = (pc.struct_field(values, [place]) for place in range(2))
    return lists, texts


def converted_lists(lists: pa.Array, items: ArrowType) -> pa.Array:
    """Lists of converted items; NULL where there is none."""
    lengths = pc.list_value_length(lists).fill_null(0)
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths.to_numpy(), dtype=np.int32)])
    return pa.ListArray.from_arrays(pa.array(offsets), items.converted(lists.flatten()), mask=pc.is_null(lists))
