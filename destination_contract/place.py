"""What the author of a destination supplies: somewhere to write, and how a client reads there."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import pytest

from apply_spark.destination import Destination
from destination_contract.samples import SAMPLES, Sample, arrays_of, comparable
from schemas.table import TableSchema


class Place(Protocol):
    """Somewhere a destination writes, new for each test, and how a client reads there."""

    def opened(self) -> Destination:
        """The destination as a new process would make it; what was written before is still there."""

    def rows(self, schema: TableSchema) -> list[tuple[Any, ...]]:
        """Every row, in the order of the columns; in no order among themselves."""


@runtime_checkable
class ChoosyPlace(Protocol):
    """A Place whose destination refuses some values, or some types."""

    def holds(self, sample: Sample) -> bool:
        """Whether the value, as Postgres prints it, has a place there; of an array, each of its items is asked for, and
        then the array itself."""


@runtime_checkable
class PrintingPlace(Protocol):
    """A Place whose client prints values more exactly than Python has them, such as infinite dates."""

    def texts(self, schema: TableSchema) -> list[tuple[str | None, ...]]:
        """As `rows`, each value as its text."""


def needs_mirror(place: Place) -> None:
    """Ends a test about what a destination finds in its own rows. A log has none to look at: what is missing in a row
    is told to its readers. A Place of one says so: `is_log = True`."""
    if getattr(place, "is_log", False):
        pytest.skip("a log looks nothing up")


def held_at(place: Place, samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
    """Those of SAMPLES, or of ARRAYS, that have a place there; an array of what has."""
    if not isinstance(place, ChoosyPlace):
        return samples
    held = tuple(sample for sample in SAMPLES if place.holds(sample))
    return held if samples is SAMPLES else tuple(array for array in arrays_of(held) if place.holds(array))


def printed(place: Place, schema: TableSchema) -> list[list[Any]]:
    """The rows, by their first column, so that equal ones are equal here, too."""
    if isinstance(place, PrintingPlace):
        return [list(texts) for texts in sorted(place.texts(schema))]
    return [comparable(row) for row in in_order(place.rows(schema))]


def in_order(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Of values of any types, NULLs among them."""
    return sorted(rows, key=repr)
