"""What an Update with an old tuple is: a change in place, or a move to another key. Pure.

pgoutput sends the old tuple where the row's identity changed, or for every update of a table with identity FULL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from capture.pgoutput.messages import UNCHANGED, ColumnValue, OldKind, TupleData, Update
from schemas.table import Column


@dataclass(slots=True)
class InPlace:
    """The key stayed: one record. `before` is there if the whole old row was sent."""

    before: TupleData | None
    after: TupleData


@dataclass(slots=True)
class Move:
    """The key changed: a delete of the old row, then a create of the new one that names the old."""

    before: TupleData
    after: TupleData


Settled: TypeAlias = InPlace | Move


def settle(columns: tuple[Column, ...], update: Update) -> Settled:
    """An update with what was not sent again filled in from the old tuple, as far as that holds it."""
    old, new = update.old, update.new
    if old is None:
        return InPlace(None, new)
    full = update.old_kind is OldKind.FULL
    if any(c.key and a is not UNCHANGED and b != a for b, a, c in zip(old, new, columns, strict=True)):
        # An unchanged value is never NULL: an old row without it is not whole, whatever its kind says. That is so for a
        # partition whose identity is its key, in the name of a root with identity FULL.
        known = ((full or c.key) and b is not None for b, c in zip(old, columns, strict=True))
        return Move(old, tuple(map(_filled, old, new, known)))
    known = (full or c.key for c in columns)
    return InPlace(old if full else None, tuple(map(_filled, old, new, known)))


def _filled(before: ColumnValue, after: ColumnValue, known: bool) -> ColumnValue:  # noqa: FBT001 -- once a column
    return before if known and after is UNCHANGED else after
