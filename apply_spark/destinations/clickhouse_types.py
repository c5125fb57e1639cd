"""How each Postgres type lives in ClickHouse: a column type, and the way in Arrow from Avro's plain value to its own.

ClickHouse has dates from 1900 to 2299, no infinite ones, and no NaN among decimals: what has no place is found by
`has_misfits` before anything is written. A timestamp is a DateTime64 in UTC, which is how ClickHouse then prints it; a
time of day is text, and so is a numeric without precision or with more than 76 digits: exact. An array is a Variant,
for an Array of ClickHouse is never NULL: the list, or the text of one that no list can hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

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
from schemas.pg_types.registry import column_type
from schemas.table import Column

_EPOCH = date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = date(1900, 1, 1).toordinal() - _EPOCH, date(2299, 12, 31).toordinal() - _EPOCH
_DAY = 86_400_000_000
_NO_SUCH_DATE = "an infinity, or a year outside 1900 to 2299"


class ClickHouseType(NamedTuple):
    """A type, and how Arrow brings its values."""

    name: str
    values: ArrowType


_MOMENT = ClickHouseType(
    "DateTime64(6, 'UTC')",
    ArrowType(
        pa.timestamp("us", tz="UTC"), None, between(_FIRST_DAY * _DAY, (_LAST_DAY + 1) * _DAY - 1), _NO_SUCH_DATE
    ),
)
_TEXT = ClickHouseType("String", TEXT)
_TYPES = {
    "bool": ClickHouseType("Bool", PLAIN["bool"]),
    "int2": ClickHouseType("Int16", PLAIN["int2"]),
    "int4": ClickHouseType("Int32", PLAIN["int4"]),
    "int8": ClickHouseType("Int64", PLAIN["int8"]),
    "oid": ClickHouseType("UInt32", PLAIN["oid"]),
    "float4": ClickHouseType("Float32", PLAIN["float4"]),
    "float8": ClickHouseType("Float64", PLAIN["float8"]),
    "bytea": ClickHouseType("String", PLAIN["bytea"]),
    "time": ClickHouseType("String", PLAIN["time"]),
    "date": ClickHouseType("Date32", ArrowType(pa.date32(), None, between(_FIRST_DAY, _LAST_DAY), _NO_SUCH_DATE)),
    "timestamp": _MOMENT,
    "timestamptz": _MOMENT,
    "uuid": ClickHouseType("UUID", TEXT),
}


def _scalar(name: str, modifier: int) -> ClickHouseType:
    if name != "numeric":
        return _TYPES.get(name, _TEXT)
    values = decimal(modifier)
    if values is None:
        return _TEXT
    return ClickHouseType(f"Decimal({values.arrow.precision}, {values.arrow.scale})", values)


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
        inner = self.scalar.values.unheld
        if not (self.is_list and self.key):
            return inner
        return f"{NO_SUCH_LIST}, or with {inner} in it" if inner else NO_SUCH_LIST

    @property
    def _list(self) -> str:
        return f"Array(Nullable({self.scalar.name}))"

    def loaded(self, name: str) -> list[LoadedColumn]:
        """An array needs three: the list, the text where no list can hold it, and whether it is NULL."""
        arrow = self.scalar.values.arrow
        if not self.is_list:
            return [LoadedColumn(name, f"Nullable({self.scalar.name})", arrow)]
        return [
            LoadedColumn(name, self._list, pa.list_(arrow)),
            LoadedColumn(f"{name}_text", "Nullable(String)", pa.string()),
            LoadedColumn(f"{name}_null", "Bool", pa.bool_()),
        ]

    def arrays(self, values: pa.Array) -> list[pa.Array]:
        """The values of a column of a batch, for the columns that `loaded` names."""
        if not self.is_list:
            return [self.scalar.values.converted(values)]
        lists, texts = members(values)
        is_null = pc.and_(pc.is_null(lists), pc.is_null(texts))
        return [converted_lists(lists, self.scalar.values), texts, is_null]

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
            return self.scalar.values.has_misfits(values)
        lists, texts = members(values)
        unheld_text = self.key and texts.null_count < len(texts)
        return unheld_text or self.scalar.values.has_misfits(lists.flatten())


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
