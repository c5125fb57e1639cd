"""How each Postgres type lives in ClickHouse: a column type, and the way in Arrow from Avro's plain value to its own.

ClickHouse has dates from 1900 to 2299, no infinite ones, and no NaN among decimals: what has no place is found by
`misfits` before anything is written. A timestamp is a DateTime64 in UTC, which is how ClickHouse then prints it; a time
of day is text, and so is a numeric without precision or with more than 76 digits: exact. An array is a Variant, for an
Array of ClickHouse is never NULL: the list, or the text of one that no list can hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.pg_types.registry import column_type
from schemas.table import Column

Convert: TypeAlias = Callable[[pa.Array], pa.Array]

_MOST_DIGITS = 76
_DIGITS_OF_128_BITS = 38
_EPOCH = date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = date(1900, 1, 1).toordinal() - _EPOCH, date(2299, 12, 31).toordinal() - _EPOCH
_DAY, _SECOND = 86_400_000_000, 1_000_000
_NO_SUCH_DATE = "an infinity, or a year outside 1900 to 2299"
_NO_SUCH_DECIMAL = "NaN or an infinity"
_NO_SUCH_LIST = "an array of more than one dimension, or one that does not begin at index 1"


class ClickHouseType(NamedTuple):
    """A type, the one in which Arrow brings its values, how to make these, which have a place, and what has none."""

    name: str
    arrow: pa.DataType
    convert: Convert | None = None
    fits: Convert | None = None
    unheld: str = ""

    def converted(self, values: pa.Array) -> pa.Array:
        return self.convert(values) if self.convert is not None else values.cast(self.arrow)

    def has_misfits(self, values: pa.Array) -> bool:
        return self.fits is not None and pc.all(self.fits(values)).as_py() is False


def _between(first: int, last: int) -> Convert:
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


def _moment(values: pa.Array) -> pa.Array:
    return values.cast(pa.timestamp("us", tz="UTC"))


_MOMENT = ClickHouseType(
    "DateTime64(6, 'UTC')",
    pa.timestamp("us", tz="UTC"),
    _moment,
    _between(_FIRST_DAY * _DAY, (_LAST_DAY + 1) * _DAY - 1),
    _NO_SUCH_DATE,
)
_TEXT = ClickHouseType("String", pa.string())
_TYPES = {
    "bool": ClickHouseType("Bool", pa.bool_()),
    "int2": ClickHouseType("Int16", pa.int16()),
    "int4": ClickHouseType("Int32", pa.int32()),
    "int8": ClickHouseType("Int64", pa.int64()),
    "oid": ClickHouseType("UInt32", pa.uint32()),
    "float4": ClickHouseType("Float32", pa.float32()),
    "float8": ClickHouseType("Float64", pa.float64()),
    "bytea": ClickHouseType("String", pa.binary()),
    "date": ClickHouseType("Date32", pa.date32(), None, _between(_FIRST_DAY, _LAST_DAY), _NO_SUCH_DATE),
    "time": ClickHouseType("String", pa.string(), _time),
    "timestamp": _MOMENT,
    "timestamptz": _MOMENT,
    "uuid": ClickHouseType("UUID", pa.string()),
}


def _is_finite(values: pa.Array) -> pa.Array:
    return pc.invert(pc.is_in(values, value_set=pa.array(["NaN", "Infinity", "-Infinity"])))


def _numeric(modifier: int) -> ClickHouseType:
    """numeric(p, s) as Decimal(p, s) where there is one; the modifier holds both, as pg_attribute.atttypmod does."""
    digits, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
    if modifier < 0 or digits > _MOST_DIGITS or scale > digits:
        return _TEXT
    arrow = (pa.decimal128 if digits <= _DIGITS_OF_128_BITS else pa.decimal256)(digits, scale)
    return ClickHouseType(f"Decimal({digits}, {scale})", arrow, None, _is_finite, _NO_SUCH_DECIMAL)


def _scalar(name: str, modifier: int) -> ClickHouseType:
    return _numeric(modifier) if name == "numeric" else _TYPES.get(name, _TEXT)


class LoadedColumn(NamedTuple):
    """A column of the table through which rows come in."""

    name: str
    type: str
    arrow: pa.DataType


@dataclass(frozen=True)
class HeldColumn:
    """A column of a mirror. In a key nothing is NULL; elsewhere everything may be, also what the source says never is:
    a row that is deleted has nothing but its key."""

    scalar: ClickHouseType
    is_list: bool
    key: bool

    @property
    def name(self) -> str:
        """Of its type."""
        inner = self.scalar.name
        if not self.is_list:
            return inner if self.key else f"Nullable({inner})"
        return self._list if self.key else f"Variant({self._list}, String)"

    @property
    def unheld(self) -> str:
        """What has no place there."""
        if not (self.is_list and self.key):
            return self.scalar.unheld
        return f"{_NO_SUCH_LIST}, or with {self.scalar.unheld} in it" if self.scalar.unheld else _NO_SUCH_LIST

    @property
    def _list(self) -> str:
        return f"Array(Nullable({self.scalar.name}))"

    def loaded(self, name: str) -> list[LoadedColumn]:
        """An array needs three: the list, the text where no list can hold it, and whether it is NULL."""
        if not self.is_list:
            return [LoadedColumn(name, f"Nullable({self.scalar.name})", self.scalar.arrow)]
        return [
            LoadedColumn(name, self._list, pa.list_(self.scalar.arrow)),
            LoadedColumn(f"{name}_text", "Nullable(String)", pa.string()),
            LoadedColumn(f"{name}_null", "Bool", pa.bool_()),
        ]

    def arrays(self, values: pa.Array) -> list[pa.Array]:
        """The values of a column of a batch, for the columns that `loaded` names."""
        if not self.is_list:
            return [self.scalar.converted(values)]
        lists, texts = _members(values)
        lengths = pc.list_value_length(lists).fill_null(0)
        offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths.to_numpy(), dtype=np.int32)])
        items = self.scalar.converted(lists.flatten())
        is_null = pc.and_(pc.is_null(lists), pc.is_null(texts))
        return [pa.ListArray.from_arrays(pa.array(offsets), items), texts, is_null]

    def expression(self, table: str, name: str) -> str:
        """SQL for a value of the mirror's type, of a table that has the loaded columns."""
        if not self.is_list:
            value = f"{table}.{name}"
            return f"assumeNotNull({value})" if self.key else value
        if self.key:
            return f"{table}.{name}"
        text = f"cast(assumeNotNull({table}.{name}_text) as {self.name})"
        whole = f"if({table}.{name}_text is not null, {text}, cast({table}.{name} as {self.name}))"
        return f"if({table}.{name}_null, cast(null as {self.name}), {whole})"

    def comparable(self, value: str) -> str:
        """SQL for a text that is equal where Postgres says that values are."""
        if self.scalar.name.startswith("Float") and not self.is_list:
            value = f"if({value} = 0, abs({value}), {value})"
        return f"ifNull(concat('=', cast({value} as Nullable(String))), '')"

    def has_misfits(self, values: pa.Array) -> bool:
        if not self.is_list:
            return self.scalar.has_misfits(values)
        lists, texts = _members(values)
        unheld_text = self.key and texts.null_count < len(texts)
        return unheld_text or self.scalar.has_misfits(lists.flatten())


def _members(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Of a struct, as Spark reads a union: the list, or else the literal that no list can hold."""
    lists, texts = (pc.struct_field(values, [place]) for place in range(2))
    return lists, texts


def held_column(column: Column) -> HeldColumn:
    known = column_type(column)
    element = known.element
    if element is None:
        return HeldColumn(_scalar(known.name, column.modifier), is_list=False, key=column.key)
    return HeldColumn(_scalar(element.name, column.modifier), is_list=True, key=column.key)


def quoted(*names: str) -> str:
    return ".".join("`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`" for name in names)


def quoted_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
