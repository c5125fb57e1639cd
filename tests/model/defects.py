"""Deliberate defects, one for each rule: the real code, or what the model does by the rules, done wrong.

Each is a context in which the explorer must find a violation. One that it does not find says that the model is blind
there, or that the rule is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from apply_spark import reader as readers
from apply_spark.intervals import Interval
from apply_spark.markers import marked
from apply_spark.micro_batch import Applier
from apply_spark.progress import Progress, TableProgress
from apply_spark.records import contents
from capture.acknowledgement import Acknowledgement
from capture.checkpoints import CheckpointWriter, LogPlace
from capture.pgoutput.messages import UNCHANGED
from capture.table_sync.resume import why_begin_again
from capture.table_sync.sync import TableSync
from capture.transcode.updates import InPlace, settle
from schemas.checkpoint import Checkpoint, CopyFinished
from schemas.epochs import EpochRule
from schemas.feedback import Feedback
from schemas.identifiers import TableName
from schemas.lsn import NOWHERE, Lsn
from schemas.phases import Ready, SyncDone
from stores.cached import CachedStore
from stores.kafka_log import Record
from tests.model import scopes
from tests.model.applying import Rules
from tests.model.broker import Broker
from tests.model.copying import Checks
from tests.model.world import LEVEL, Scope, Step


@dataclass(frozen=True)
class Defect:
    """What is done wrong, and where the explorer looks for it first."""

    name: str
    made: Callable[[], AbstractContextManager[Any]]
    scopes: tuple[Scope, ...]
    prologue: tuple[Step, ...] = ()
    """Where it takes many steps in one order, those that come first: from there every state is looked at."""


def _replaced(target: Any, name: str, new: Any) -> Callable[[], AbstractContextManager[Any]]:  # noqa: ANN401
    return lambda: patch.object(target, name, new)


# What counts on the topics.


def _accepts_all(self: EpochRule, checkpoint: Checkpoint) -> bool:
    self.live = checkpoint.epoch
    return True


def _of_any_epoch(rows: pa.Table, interval: Interval) -> pa.Table:
    kept = [row for row in rows.to_pylist() if interval.start <= row["commit_lsn"] < interval.window_end]
    return pa.Table.from_pylist(kept, rows.schema)


def _closed_window(rows: pa.Table, interval: Interval) -> pa.Table:
    kept = [
        row
        for row in rows.to_pylist()
        if interval.start < row["commit_lsn"] <= interval.window_end and row["epoch"] == interval.epoch
    ]
    return pa.Table.from_pylist(kept, rows.schema)


def _without_counting(_part: Any, rows: pa.Table) -> pa.Table:  # noqa: ANN401 -- a part of the real reader
    return rows


@contextmanager
def _orphans_count() -> Iterator[None]:
    """Each position is the same in every incarnation, so rows of another one hide behind the first that is found."""
    with patch.object(readers, "records_within", _of_any_epoch), patch.object(readers, "_all_there", _without_counting):
        yield


def _last_record(broker: Broker, topic: str) -> tuple[int, Checkpoint] | None:
    found = [(record.offset, Checkpoint.decode(record.value or b"")) for record in broker.last(topic, 1)]
    return found[0] if found else None


@contextmanager
def _capture_without_epoch_rule() -> Iterator[None]:
    with (
        patch("tests.model.capturing.last_accepted", _last_record),
        patch("tests.model.world.last_accepted", _last_record),
    ):
        yield


# Rows.


def _nothing_partial(rows: pa.Table) -> Any:  # noqa: ANN401 -- Contents
    return replace(contents(rows), partial=0)


def _no_move(columns: Any, update: Any) -> Any:  # noqa: ANN401 -- as the real one
    settled = settle(columns, update)
    return settled if isinstance(settled, InPlace) else InPlace(None, settled.after)


def _unchanged_is_null(columns: Any, update: Any) -> Any:  # noqa: ANN401 -- as the real one
    settled = settle(columns, update)
    after = tuple(None if value is UNCHANGED else value for value in settled.after)
    return replace(settled, after=after)


# Copies.


def _ready_at_once(self: Progress) -> Progress:
    level = [
        replace(table, phase=Ready())
        for table in self.tables.values()
        if isinstance(table.phase, SyncDone) and table.log_offset == self.log_offset and table.lsn == self.lsn
    ]
    return self.with_tables(*level)


def _resumes(*reasons: str) -> Callable[..., str | None]:
    def judged(*args: Any) -> str | None:  # noqa: ANN401 -- as the real one
        why = why_begin_again(*args)
        return None if why in reasons else why

    return judged


def _any_generation(progress: Progress, interval: Interval, level: set[TableName]) -> Progress:
    def of_now(marker: Any) -> Any:  # noqa: ANN401 -- any marker
        table = progress.tables.get(marker.table)
        told = isinstance(marker, CopyFinished) and table is not None
        return replace(marker, generation=table.generation) if told and table is not None else marker

    return marked(progress, replace(interval, markers=tuple(map(of_now, interval.markers))), level)


@contextmanager
def _place_after_snapshot() -> Iterator[None]:
    real = TableSync._begin_copies

    def begin(self: TableSync, session: Any, waiting: Any) -> None:  # noqa: ANN401 -- as the real one
        real(self, session, replace(waiting, place=self.place()))

    with patch.object(TableSync, "_begin_copies", begin):
        yield


# Acknowledgement.


def _followed_kafka(_self: Acknowledgement, checkpoint: Lsn) -> Lsn:
    return checkpoint


@contextmanager
def _past_the_checkpoint() -> Iterator[None]:
    real = Acknowledgement.update

    def update(self: Acknowledgement, checkpoint: Lsn, wal_end: Lsn = NOWHERE) -> bool:
        moved = real(self, checkpoint, wal_end)
        self.flushed = max(self.flushed, self._allowed(checkpoint, max(wal_end, checkpoint)))
        return moved

    with patch.object(Acknowledgement, "update", update):
        yield


@contextmanager
def _told_before_written() -> Iterator[None]:
    real = Applier._write_interval

    def write(
        self: Applier, here: Progress, interval: Interval, moving: list[TableProgress], following: Interval | None
    ) -> None:
        after = self._after(here, interval, moving)
        self._parts.feedback.send(after)
        self._parts.feedback.land()  # type: ignore[union-attr]
        real(self, here, interval, moving, following)

    with patch.object(Applier, "_write_interval", write):
        yield


def _hears_the_last(self: Acknowledgement, records: Iterable[Record]) -> None:
    for record in records:
        feedback = Feedback.decode(record.value or b"")
        self._reported[feedback.destination] = feedback.lsn


# Destinations and memory.


def _opened_without_ends(self: CheckpointWriter, lsn: Lsn, topics: set[str], commit_ts: int, _control: int) -> None:
    self.lsn, self.commit_ts = lsn, commit_ts
    self._ends = self._measure(topics)
    self._place = LogPlace(len(self._log.logs[self._topic]), dict(self._ends))  # type: ignore[attr-defined]


def _set(target: Any, name: str) -> Callable[[], AbstractContextManager[Any]]:  # noqa: ANN401 -- a class of switches
    return lambda: patch.object(target, name, False)


def _claims_nothing(_self: CachedStore) -> None:
    """Whoever writes last is right."""


def _identity(rows: Any, *_more: Iterable[Any]) -> Any:  # noqa: ANN401 -- any table
    return rows


_EPOCHS, _COPIES, _ACKS, _PLACES = (scopes.ZOMBIES,), (scopes.COPIES,), (scopes.ACKNOWLEDGED,), (scopes.DESTINATIONS,)
_BESIDE = (replace(scopes.DESTINATIONS, atomic=(True,)),)

_ANNOUNCED: tuple[Step, ...] = (
    ("start",),
    ("check",),
    ("open",),
    ("look", ""),
    ("snapshot", ""),
    ("begin copies", ""),
    ("cut", ""),
    ("range", "", "b"),
)
"""A copy is under way, the log says so, and Kafka has a part of it."""
_CAUGHT: tuple[Step, ...] = (("commit", "update a"), ("read", ""), ("cut", ""))
_ONE_AHEAD: tuple[Step, ...] = (
    LEVEL,
    *_CAUGHT,
    *_CAUGHT,
    *(("take", "1"), ("tell", "1")),
    *(("take one", "0"), ("tell", "0")),
    ("acknowledge",),
    *(("crash",), ("start",), ("check",)),
)
"""One destination has two transactions, the other one, and what both have is let go; then capture starts again."""

DEFECTS = [
    Defect("epochs are ignored by readers of the log", _replaced(EpochRule, "accepts", _accepts_all), _EPOCHS),
    Defect("capture reads its own log without the epoch rule", _capture_without_epoch_rule, _EPOCHS),
    Defect("a new capture writes no opening", _replaced(CheckpointWriter, "open", _opened_without_ends), _EPOCHS),
    Defect("an orphan's rows count", _orphans_count, (scopes.ORPHANS,)),
    Defect("windows include their end", _replaced(readers, "records_within", _closed_window), _EPOCHS),
    Defect("rows that came twice are kept", _replaced(readers, "_all_there", _without_counting), _EPOCHS),
    Defect("what the copy holds is applied again", _replaced(readers, "since", _identity), (scopes.COPIED_BAGS,)),
    Defect("a key change is an update", lambda: patch("capture.streaming.settle", _no_move), _PLACES),
    Defect("unsent is NULL", lambda: patch("capture.streaming.settle", _unchanged_is_null), _PLACES),
    Defect("unsent columns are not filled", _replaced(readers, "contents", _nothing_partial), _PLACES),
    Defect("Ready below the newest snapshot", _replaced(Progress, "levelled", _ready_at_once), (scopes.RESUMED,)),
    Defect(
        "resumed copies are appended", _replaced(TableProgress, "repeats", property(lambda _: False)), (scopes.RESUMED,)
    ),
    Defect(
        "tables without whole changes resume",
        lambda: patch(
            "capture.table_sync.beginnings.why_begin_again",
            _resumes("updates may leave out TOASTed values; replica identity full would send them"),
        ),
        (scopes.RESUMED,),
        prologue=_ANNOUNCED,
    ),
    Defect(
        "tables without a key resume",
        lambda: patch(
            "capture.table_sync.beginnings.why_begin_again",
            _resumes(
                "the table has no key", "updates may leave out TOASTed values; replica identity full would send them"
            ),
        ),
        (scopes.COPIED_BAGS,),
    ),
    Defect(
        "a copy of another generation counts", lambda: patch("apply_spark.micro_batch.marked", _any_generation), _COPIES
    ),
    Defect("the log's place is taken after the snapshot", _place_after_snapshot, _COPIES),
    Defect("ranges do not compare files", _set(Checks, "compare_files"), _COPIES),
    Defect("WAL goes before feedback", _replaced(Acknowledgement, "_followed", _followed_kafka), _ACKS),
    Defect("WAL goes past the last checkpoint", _past_the_checkpoint, _EPOCHS),
    Defect("a late report is believed", _replaced(Acknowledgement, "hear", _hears_the_last), (scopes.TOLD,)),
    Defect("old reports are heard one by one", _set(Checks, "hear_all_first"), (scopes.TOLD,), _ONE_AHEAD),
    Defect("feedback goes before the rows", _told_before_written, _BESIDE),
    Defect("progress is a commit of its own", _set(Rules, "rows_with_progress"), _BESIDE),
    Defect("an owner that was replaced may write", _set(Rules, "compare_and_set"), _BESIDE),
    Defect("a store that was taken may be written", _replaced(CachedStore, "claim", _claims_nothing), _COPIES),
]
