"""What a destination has to hold in each mode, worked out change by change from the records of a `SourceTable`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession

from apply_spark.config import Mode
from apply_spark.copies import upserts
from apply_spark.destination import Batch, Destination, TableChanges
from apply_spark.destinations.memory import MemoryDestination
from apply_spark.kept import kept_changes
from apply_spark.kept_destination import KeptDestination
from apply_spark.modes import OPEN
from apply_spark.progress import Progress
from apply_spark.records import contents
from apply_spark.rows import ArrowRows, SparkRows
from apply_spark.showing import Showing
from destination_contract.batches import a_progress
from schemas.pg_types.dates import parse_timestamp
from tests.support.fold_model import KEYED, Change, Key, Values, key_of

_IMAGE = pa.struct(
    [
        ("case", pa.int64()),
        ("note", pa.string()),
        ("id", pa.int64()),
        ("body", pa.string()),
        ("sub_x20_id", pa.int64()),
        ("amount", pa.int64()),
    ]
)
_SHAPE = pa.schema(
    [
        ("commit_lsn", pa.int64()),
        ("ordinal", pa.int64()),
        ("epoch", pa.int64()),
        ("ts_us", pa.int64()),
        ("op", pa.string()),
        ("before", _IMAGE),
        ("after", _IMAGE),
        ("unchanged", pa.list_(pa.string())),
    ]
)
COPIED_AT = 7
"""The generation of `a_progress`."""


def time_of(lsn: int) -> int:
    """When a transaction was committed, in these tests."""
    return 1_700_000_000_000_000 + lsn


class Told(NamedTuple):
    """A change, the key that it is about, and the whole row after it."""

    change: Change
    key: Key | None
    row: Values | None


class Kept:
    """A destination in a mode, filled with what a table held at first."""

    def __init__(self, spark: SparkSession, destination: Destination, mode: Mode, began: Iterable[Values]) -> None:
        self._spark = spark
        self._real = destination
        self._destination = KeptDestination(destination, mode)
        self._showing = Showing(mode=mode)
        self._lsn = 10
        self._destination.startup()
        self._destination.drop_table_for_copy(KEYED, self._progress())
        images = pa.array([_image(row) for row in began], _IMAGE)
        self._destination.write_table_rows(KEYED, ArrowRows(spark, pa.table({"row": images})), self._progress())

    def copy(self, rows: Iterable[Values]) -> None:
        """Rows of a copy that was interrupted and resumed."""
        images = pa.table({"row": pa.array([_image(row) for row in rows], _IMAGE)})
        self._destination.write_events(Batch((upserts(self._spark, images, KEYED),), self._progress()))

    def take(self, changes: Iterable[Change], *, in_spark: bool = False, of_a_resumed_copy: bool = False) -> None:
        """One interval, in no order; perhaps one that lies before the newest snapshot of the copy."""
        records = [
            {
                **change._asdict(),
                "ts_us": time_of(change.commit_lsn),
                "before": _image(change.before),
                "after": _image(change.after),
            }
            for change in reversed(list(changes))
        ]
        table, progress = pa.Table.from_pylist(records, _SHAPE), self._progress()
        here = ArrowRows(self._spark, table)
        rows = SparkRows(here.frame()) if in_spark else here
        before = a_progress(COPIED_AT if of_a_resumed_copy else self._lsn, KEYED).tables[KEYED.name]
        made = kept_changes(self._showing, before, rows, KEYED, contents(table))
        if isinstance(self._real, MemoryDestination):
            made = replace(made, rows=ArrowRows(self._spark, made.rows.arrow()))
            assert_each_key_once(made)
        self._destination.write_events(Batch((made,), progress))

    def end(self) -> None:
        self._destination.shutdown()

    def _progress(self) -> Progress:
        self._lsn += 1
        return a_progress(self._lsn, KEYED)


def assert_each_key_once(changes: TableChanges) -> None:
    """Not every destination would notice."""
    if changes.schema.key:
        keys = [tuple(key.values()) for key in changes.rows.arrow()["key"].to_pylist()]
        assert len(keys) == len(set(keys))


def _image(row: Values | None) -> dict[str, object] | None:
    return None if row is None else dict(zip([field.name for field in _IMAGE], row, strict=True))


def replayed(began: Iterable[Values], changes: Iterable[Change]) -> Iterator[Told]:
    """In order, with what was not sent."""
    rows, moving = {key_of(row): row for row in began}, None
    for change in changes:
        image = change.after if change.after is not None else change.before
        if image is None:
            rows.clear()
            yield Told(change, None, None)
        elif change.after is None:
            moving = rows.pop(key_of(image))
            yield Told(change, key_of(image), None)
        else:
            base = moving if change.before is not None else rows.get(key_of(image))
            row = tuple(
                base[place] if base is not None and column.name in change.unchanged else image[place]
                for place, column in enumerate(KEYED.columns)
            )
            rows[key_of(image)] = row
            yield Told(change, key_of(image), row)


def soft_deleted(began: list[Values], changes: Iterable[Change]) -> list[Values]:
    """Every row that ever was, as it last was."""
    held: dict[Key, Values] = {key_of(row): (False, COPIED_AT, None, *row) for row in began}
    for change, key, row in replayed(began, changes):
        lsn = change.commit_lsn
        if key is None:
            held = {k: v if v[0] else (True, lsn, time_of(lsn), *v[3:]) for k, v in held.items()}
        elif row is None:
            held[key] = (True, lsn, time_of(lsn), *held[key][3:])
        else:
            held[key] = (False, lsn, time_of(lsn), *row)
    return sorted(held.values(), key=repr)


def all_versions(began: list[Values], changes: Iterable[Change]) -> list[Values]:
    """Transaction by transaction: a row that was touched ends its version, and begins one if it is there."""
    ended: list[Values] = []
    current: dict[Key, Values] = {key_of(row): (None, None, COPIED_AT, OPEN, *row) for row in began}
    rows: dict[Key, Values] = {key_of(row): row for row in began}
    for lsn, transaction in groupby(replayed(began, changes), key=lambda each: each.change.commit_lsn):
        touched: set[Key] = set()
        for _, key, row in transaction:
            touched |= rows.keys() if key is None else {key}
            if key is None:
                rows = {}
            elif row is None:
                del rows[key]
            else:
                rows[key] = row
        for key in touched:
            before = current.pop(key, None)
            if before is not None:
                ended.append((before[0], time_of(lsn), before[2], lsn, *before[4:]))
            if key in rows:
                current[key] = (time_of(lsn), None, lsn, OPEN, *rows[key])
    return sorted([*ended, *current.values()], key=repr)


def all_changes(began: list[Values], changes: Iterable[Change]) -> list[Values]:
    nothing = (None,) * len(KEYED.columns)
    copied = [("r", COPIED_AT, None, None, (), *row) for row in began]
    told = [
        (
            change.op,
            change.commit_lsn,
            change.ordinal,
            time_of(change.commit_lsn),
            tuple(change.unchanged),
            *(change.after or change.before or nothing),
        )
        for change in changes
    ]
    return sorted([*copied, *told], key=repr)


MODELS: dict[Mode, Callable[[list[Values], list[Change]], list[Values]]] = {
    Mode.SOFT_DELETE: soft_deleted,
    Mode.HISTORY: all_versions,
    Mode.LOG: all_changes,
}


def comparable(rows: Iterable[Values]) -> list[Values]:
    """What a client reads, as the models have it."""
    return sorted((tuple(_plain(value) for value in row) for row in rows), key=repr)


def _plain(value: object) -> object:
    match value:
        case datetime():
            moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        case list():
            return tuple(value)
        case str() if value.endswith("+00"):
            return parse_timestamp(value)
        case _:
            return value
