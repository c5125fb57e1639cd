"""Two shapes of one table in, what lies between them out: changes that Postgres makes without touching a row.

Columns are known by their number: a name may be given to another column, a number never is. A destination that makes
the same changes has the rows that the source has; where that cannot be known, only a copy is true.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TypeAlias

from schemas.table import Column, TableSchema

_VARCHAR = 1043


@dataclass(frozen=True, slots=True)
class ColumnAdded:
    """Rows that were there have `column.missing` in it."""

    column: Column


@dataclass(frozen=True, slots=True)
class ColumnDropped:
    """It stands under this name before the change."""

    column: Column


@dataclass(frozen=True, slots=True)
class ColumnRenamed:
    """The same column, with the same values."""

    before: Column
    after: Column


SchemaChange: TypeAlias = ColumnAdded | ColumnDropped | ColumnRenamed


def changes(before: TableSchema, after: TableSchema) -> list[SchemaChange] | None:
    """What makes `after` of `before`; None where only a copy does. Empty: nothing that a destination has to do.

    That no row was rewritten in between is for the caller to know. Added columns stand behind all others."""
    old = {column.number: column for column in before.columns}
    new = {column.number: column for column in after.columns}
    kept = old.keys() & new.keys()
    if (
        (before.id, before.name, before.identity) != (after.id, after.name, after.identity)
        or 0 in old.keys() | new.keys()
        or {column.number for column in before.key} != {column.number for column in after.key}
        or not all(same_values(old[number], new[number]) for number in kept)
        or not all(number > before.width > 0 for number in new.keys() - kept)  # else it was there, and not published
        or [*_in_order(before, kept), *sorted(new.keys() - kept)] != [column.number for column in after.columns]
    ):
        return None
    dropped = [ColumnDropped(column) for column in before.columns if column.number not in kept]
    renamed = [
        ColumnRenamed(old[number], new[number])
        for number in _in_order(before, kept)
        if old[number].name != new[number].name
    ]
    added = [ColumnAdded(column) for column in after.columns if column.number not in kept]
    return [*dropped, *renamed, *added]


def reached(shapes: Sequence[TableSchema]) -> TableSchema:
    """The last of shapes that follow each other, with what rows of the first miss in it.

    The catalog forgets what rows miss in a column when the table is rewritten by VACUUM FULL: what it said first, when
    the column came, is true."""
    first: dict[int, Column] = {}
    for shape in shapes:
        first = {column.number: column for column in shape.columns} | first
    columns = tuple(replace(column, missing=first[column.number].missing) for column in shapes[-1].columns)
    return replace(shapes[-1], columns=columns)


def _in_order(schema: TableSchema, numbers: AbstractSet[int]) -> list[int]:
    return [column.number for column in schema.columns if column.number in numbers]


def same_values(before: Column, after: Column) -> bool:
    """A length may change, of a type where it says nothing about how a value is written."""
    return (before.type_oid, before.delimiter) == (after.type_oid, after.delimiter) and (
        before.modifier == after.modifier or before.type_oid == _VARCHAR
    )
