"""One process of apply: the real Applier and IntervalReader over the small servers, and destinations of two kinds.

Records are decoded already, and what Spark folds (rows sent in part, rows without a key) is folded here, one change
after the other: `tests/integration/test_fold.py` compares Spark's fold with such a one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pyarrow as pa

from apply_spark.commands import first_command_of
from apply_spark.config import ApplyTuning
from apply_spark.copies import CopyReader
from apply_spark.destination import Batch, TableChanges
from apply_spark.destinations.plans import Plan, taken
from apply_spark.errors import PartialRow, TableFailed
from apply_spark.fold import Contents
from apply_spark.intervals import Budget, Interval
from apply_spark.micro_batch import Applier, Parts
from apply_spark.opened import Opened
from apply_spark.progress import Progress, TableProgress
from apply_spark.read import OffsetRange, checked
from apply_spark.reader import IntervalReader, _Ahead, _Part
from apply_spark.rows import Rows
from apply_spark.run import _begin
from apply_spark.showing import EVERYTHING
from schemas.feedback import Feedback
from schemas.identifiers import DestinationName, SchemaId, TableName
from schemas.lsn import Position
from schemas.table import TableSchema
from tests.model.broker import Broker, Change
from tests.model.streamed import TOPICS

_IMAGE = pa.struct([("id", pa.int64()), ("note", pa.string()), ("body", pa.string())])
_FIELDS = ("id", "note", "body")
_KEY = pa.struct([("id", pa.int64())])
_RECORD = pa.schema(
    [
        ("commit_lsn", pa.int64()),
        ("ordinal", pa.int64()),
        ("epoch", pa.int64()),
        ("op", pa.string()),
        ("before", _IMAGE),
        ("after", _IMAGE),
        ("unchanged", pa.list_(pa.string())),
    ]
)


class Violation(AssertionError):
    """A promise is broken."""


class Died(Exception):
    """The process is gone."""


def _image(values: tuple[Any, ...] | None) -> dict[str, Any] | None:
    return None if values is None else dict(zip(_FIELDS, values, strict=True))


def arrow(changes: list[Change]) -> pa.Table:
    rows = [{**c._asdict(), "before": _image(c.before), "after": _image(c.after)} for c in changes]
    return pa.Table.from_pylist(rows, _RECORD)


@dataclass(frozen=True)
class Folded:
    """Stands for the frame that Spark would have folded."""

    rows: pa.Table

    def toArrow(self) -> pa.Table:  # noqa: N802 -- Spark's name
        return self.rows


def fold_here(rows: pa.Table, schema: TableSchema, contents: Contents) -> Folded:
    """What `apply_spark.fold.fold` gives, as `apply_spark.destination.TableChanges` describes it."""
    since = contents.truncated_at or Position(cast(Any, -1), 0)
    changes = sorted(rows.to_pylist(), key=lambda c: (c["commit_lsn"], c["ordinal"]))
    changes = [c for c in changes if (c["commit_lsn"], c["ordinal"]) > tuple(since) and c["op"] != "t"]
    return Folded(_last_images(changes) if schema.key else _net(changes))


def _net(changes: list[dict[str, Any]]) -> pa.Table:
    net = Counter[tuple[Any, ...]]()
    for change in changes:
        if change["after"] is not None:
            net[tuple(change["after"].values())] += 1
        if change["op"] in ("u", "d"):
            net[tuple(change["before"].values())] -= 1
    rows = [{"row": _image(values), "net": count} for values, count in net.items() if count]
    return pa.Table.from_pylist(rows, pa.schema([("row", _IMAGE), ("net", pa.int64())]))


def _last_images(changes: list[dict[str, Any]]) -> pa.Table:
    """Each life of a row: what is known of it, and under which key the destination has the rest."""
    lives: dict[int, dict[str, Any]] = {}
    moved: dict[str, Any] = {}
    for change in changes:
        key = (change["after"] or change["before"])["id"]
        known = lives.get(key, {"row": {}, "base": {"id": key}})
        if change["op"] == "c":
            known = moved if change["before"] is not None else {"row": {}, "base": None}
        if change["op"] == "d":
            moved, known = known, {"row": None, "base": None}
        else:
            sent = {name: value for name, value in change["after"].items() if name not in change["unchanged"]}
            known = {"row": (known["row"] or {}) | sent, "base": known["base"]}
        lives[key] = known
    rows = [
        {
            "deleted": life["row"] is None,
            "key": {"id": key},
            "row": life["row"],
            "missing": [name for name in _FIELDS if life["row"] is not None and name not in life["row"]],
            "base": life["base"],
        }
        for key, life in lives.items()
    ]
    shape = [
        ("deleted", pa.bool_()),
        ("key", _KEY),
        ("row", _IMAGE),
        ("missing", pa.list_(pa.string())),
        ("base", _KEY),
    ]
    return pa.Table.from_pylist(rows, pa.schema(shape))


class NoSpark:
    """What folds here needs no frames."""

    @staticmethod
    def createDataFrame(rows: pa.Table) -> pa.Table:  # noqa: N802 -- Spark's name
        return rows


class Reader(IntervalReader):
    """The real one; records come decoded."""

    def __init__(self, broker: Broker, schemas: dict[TableName, TableSchema], budget: Budget) -> None:
        self._spark = cast(Any, NoSpark())
        self._topics = TOPICS
        self._log = cast(Any, broker)
        self._budget = budget
        self._showing = EVERYTHING
        self._shapes = {SchemaId(schema.id): schema for schema in schemas.values()}

    def _shape(self, _table: TableProgress, schema_id: SchemaId) -> TableSchema:
        return self._shapes[schema_id]

    def _is_within_budget(self, _interval: Interval, _ranges: dict[str, OffsetRange]) -> bool:
        """There is no Spark to read more."""
        return True

    def _begun(self, ranges: dict[str, OffsetRange]) -> _Ahead:
        """Nothing is read ahead: records on their topic do not change."""
        return _Ahead(ranges, Future())

    def _records(
        self, interval: Interval, parts: list[_Part], ranges: dict[str, OffsetRange]
    ) -> Iterator[tuple[_Part, pa.Table]]:
        from apply_spark import reader  # noqa: PLC0415 -- as the real one finds it, also where a test has replaced it

        for part in parts:
            start, end = ranges[part.moved.topic]
            found = cast(Broker, self._log).logs[part.moved.topic][start:end]
            yield part, reader.records_within(arrow(found), interval)


class Copies(CopyReader):
    """Pieces of copy topics; nothing is read ahead."""

    def __init__(self, broker: Broker) -> None:
        self._log = cast(Any, broker)

    @contextmanager
    def piece(self, table: TableProgress, most: int) -> Iterator[tuple[pa.Table, int]]:
        topic, place = TOPICS.copy(table.table, table.generation), table.copy_offset
        assert table.copy_end is not None
        start, end = checked(self._log, {topic: OffsetRange(place, min(table.copy_end, place + most))})[topic]
        found = cast(Broker, cast(Any, self._log)).logs[topic][start:end]
        yield pa.table({"row": pa.array([_image(change.after) for change in found], _IMAGE)}), end


class Feedbacks:
    """Stands for FeedbackSender: what is sent lands when the explorer says so, or never."""

    def __init__(self, broker: Broker, destination: DestinationName) -> None:
        self._broker = broker
        self._destination = destination
        self.waiting: list[bytes] = []

    def send(self, progress: Progress) -> None:
        tables = tuple(table.report() for table in progress.tables.values())
        told = Feedback(self._destination, progress.log_id, progress.lsn, 0, 0, tables)
        self.waiting.append(told.encode())

    def land(self) -> None:
        for record in self.waiting:
            self._broker.append(TOPICS.feedback, record)
        self.waiting.clear()


class Rules:
    """What destinations do by the rules, so that a test can have it done wrong."""

    compare_and_set = True
    rows_with_progress = True


@dataclass
class Place:
    """A destination as it outlives any apply: rows, and what was stored with them.

    `atomic`: one commit for all tables of a batch, and the progress. Else each table commits with its own."""

    name: DestinationName
    atomic: bool
    rows: dict[TableName, list[tuple[Any, ...]]] = field(default_factory=dict)
    owner: int = 0
    plan: Plan | None = None
    done: tuple[TableName, ...] = ()

    @property
    def progress(self) -> Progress | None:
        return None if self.plan is None else self.plan.reached(self.done)


class Handle:
    """The Destination that one apply has of a place."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.name = place.name
        self.dies_after: int | None = None
        """So many commits of the next batch."""

    def startup(self) -> Progress | None:
        self._place.owner += 1
        self._owner = self._place.owner
        return self._place.progress

    def drop_table_for_copy(self, schema: TableSchema, progress: Progress) -> None:
        self._require_ours()
        self._place.rows[schema.name] = []
        self.save_progress(progress)

    def write_table_rows(self, schema: TableSchema, rows: Rows, progress: Progress) -> None:
        self._require_ours()
        copied = [tuple(each["row"].values()) for each in rows.arrow().to_pylist()]
        self._commit({schema.name: _with(schema, self._place.rows[schema.name], copied)}, progress)

    def write_events(self, batch: Batch) -> None:
        self._require_ours()
        place = self._place
        written = {each.schema.name: _written(each, place.rows[each.schema.name]) for each in batch.tables}
        if place.atomic:
            self._commit(written, batch.progress)
        else:
            self._commit_each(written, batch.progress)

    def _commit(self, written: dict[TableName, list[tuple[Any, ...]]], progress: Progress) -> None:
        if self.dies_after == 0:
            raise Died
        self._place.rows |= written
        if self.dies_after is not None and not Rules.rows_with_progress:
            raise Died
        self.save_progress(progress)
        if self.dies_after is not None:
            raise Died

    def _commit_each(self, written: dict[TableName, list[tuple[Any, ...]]], progress: Progress) -> None:
        place = self._place
        place.plan, place.done = Plan(self._owner, 1, progress, place.progress, tuple(written)), ()
        for name, rows in written.items():
            if self.dies_after == len(place.done):
                raise Died
            place.rows[name] = rows
            place.done += (name,)
        if self.dies_after is not None:
            raise Died

    def save_progress(self, progress: Progress) -> None:
        self._require_ours()
        self._place.plan, self._place.done = Plan(self._owner, 1, progress), ()

    def _require_ours(self) -> None:
        if Rules.compare_and_set and self._owner != self._place.owner:
            raise taken(self.name)


def _with(schema: TableSchema, rows: list[tuple[Any, ...]], more: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    together = [*rows, *more]
    if schema.key and len({row[0] for row in together}) < len(together):
        raise Violation(f"{schema.name} has a key twice")
    return together


def _written(changes: TableChanges, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    rows, events = [] if changes.truncate else rows, changes.rows.arrow().to_pylist()
    if not changes.schema.key:
        bag = Counter(rows)
        for event in events:
            bag[tuple(event["row"].values())] += event["net"]
        return list((+bag).elements())  # what is not there cannot go: a table that left and came back misses changes
    known = {row[0]: row for row in rows}
    filled = [_filled(changes.schema, event, known) for event in events if not event["deleted"]]
    for event in events:
        known.pop(event["key"]["id"], None)
    return _with(changes.schema, list(known.values()), filled)


def _filled(schema: TableSchema, event: dict[str, Any], known: dict[int, tuple[Any, ...]]) -> tuple[Any, ...]:
    missing = event.get("missing") or ()
    base = known.get(event["base"]["id"]) if missing and event["base"] is not None else None
    if missing and base is None:
        raise TableFailed(schema.name, PartialRow("A row lacks columns that were not sent, and has no base."))
    old = _image(base) or {}
    return tuple(old[name] if name in missing else event["row"][name] for name in _FIELDS)


class Apply:
    """An incarnation, from taking the destination to its end; a zombie once another has taken it."""

    def __init__(
        self, place: Place, broker: Broker, schemas: dict[TableName, TableSchema], tuning: ApplyTuning
    ) -> None:
        self.place = place
        self.tuning = tuning
        self._broker = broker
        self.feedback = Feedbacks(broker, place.name)
        self.handle = Handle(place)
        stored = self.handle.startup()
        budget = Budget(tuning.interval_rows, int(tuning.interval_bytes))
        reader = Reader(broker, schemas, budget)
        shapes = cast(Any, Shapes(reader))
        parts = Parts(*cast(Any, (NoSpark(), TOPICS, broker, shapes, reader, Copies(broker), self.feedback)), tuning)
        opened = Opened(cast(Any, self.handle), stored, cast(Any, broker), cast(Any, NoSpark()))
        self.next, stored = _begin(opened, TOPICS, parts)
        command = first_command_of(cast(Any, broker), TOPICS.control, stored)
        self.applier = Applier(cast(Any, self.handle), stored, replace(parts, clock=lambda: 0), command)

    @property
    def waiting(self) -> int:
        return len(self._broker.logs[TOPICS.checkpoints]) - self.next

    def take(self, count: int | None = None) -> None:
        end = self.next + (self.waiting if count is None else min(count, self.waiting))
        records = list(self._broker.read(TOPICS.checkpoints, self.next, end))
        self.next = end
        self.applier.take(records)

    def has_work(self) -> bool:
        progress = self.applier.progress
        return progress is not None and self.applier._next_piece(progress) is not None

    def work(self) -> None:
        self.applier.work(lambda: True)


@dataclass(frozen=True)
class Shapes:
    """Stands for the schema topic."""

    reader: Reader

    def get(self, schema_id: SchemaId) -> Any:  # noqa: ANN401 -- its `table` is all that is asked for
        return _Registered(self.reader._shapes[schema_id])

    def shapes_of(self, _table: object) -> tuple[TableSchema, ...]:
        return ()


@dataclass(frozen=True)
class _Registered:
    table: TableSchema
