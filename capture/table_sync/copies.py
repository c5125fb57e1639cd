"""The copies under way: ranges of all tables to a bounded number of workers, the largest table first.

A table is done when its last range is, with the sums of all; a range that failed ends the table's other ranges.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing import connection
from typing import TypeAlias

import structlog

from capture.metrics import COPIED_BYTES, COPIED_ROWS, COPIED_SHARE, COPY_LEFT
from capture.table_sync.copier import Copied, FileChanged, TableJob
from capture.table_sync.nursery import Nursery
from capture.table_sync.pool import Worker
from capture.table_sync.ranges import CopyRange
from capture.table_sync.snapshot import HeldSnapshot
from capture.table_sync.worker import Failed, Report, Task, WorkerSettings
from schemas.identifiers import TableName
from schemas.lsn import Lsn

_PROGRESS_SECONDS = 10.0

log = structlog.get_logger(__name__)


@dataclass
class Round:
    """Copies under one snapshot, which is held until the last of them is done."""

    snapshot: HeldSnapshot
    left: int

    def leave(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.snapshot.close()


@dataclass(frozen=True)
class Whole:
    """A copy of which Kafka has every range."""

    table: TableName
    generation: Lsn
    last: Lsn
    """Its newest snapshot."""
    topic: str
    rows: int
    bytes: int
    fewest_records: int
    """That must be on the topic. More may be there only where the copy was resumed."""

    @property
    def resumed(self) -> bool:
        return self.last > self.generation


@dataclass(eq=False)
class TableCopying:
    """One copy of one table: the ranges that wait, those that workers have, and what is done."""

    job: TableJob
    round: Round
    waiting: list[CopyRange]
    running: dict[CopyRange, Copied] = field(default_factory=dict)
    done: dict[CopyRange, Copied] = field(default_factory=dict)
    earlier_rows: int = 0
    """Of ranges that were done before this attempt."""
    topic_from: int = 0
    """Where the copy topic ended when this attempt began."""
    began: float = field(default_factory=time.monotonic)
    logged: float = field(default_factory=time.monotonic)
    _share_before: float = field(init=False)

    def __post_init__(self) -> None:
        self._share_before = self.share

    @property
    def name(self) -> TableName:
        return self.job.table.name

    @property
    def rows(self) -> int:
        return sum(each.rows for each in (*self.done.values(), *self.running.values()))

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in (*self.done.values(), *self.running.values()))

    def whole(self) -> Whole:
        """Once all of its ranges are done."""
        job, fewest = self.job, self.topic_from + self.rows - self.earlier_rows
        return Whole(self.name, job.generation, job.snapshot_lsn, job.topic, self.rows, self.bytes, fewest)

    @property
    def share(self) -> float:
        """How much of the table is done, by the blocks of the ranges that are."""
        parts = [*self.done, *self.running, *self.waiting]
        return (1 + sum(part.blocks for part in self.done)) / (1 + sum(part.blocks for part in parts))

    def seconds_left(self, now: float) -> float | None:
        """If it goes on as it went since this attempt began; None while no range of it is done."""
        gained = self.share - self._share_before
        return (now - self.began) * (1 - self.share) / gained if gained > 0 else None


@dataclass(frozen=True)
class Ended:
    """A copy of a table that is no longer under way, and why. None: its worker died without a word."""

    copy: TableCopying
    outcome: Report | None


RangeDone: TypeAlias = Callable[[TableCopying, CopyRange, Copied], None]
"""Called when Kafka has all of a range, before its worker gets another one: so at most one range of each is unknown."""
Assignment: TypeAlias = tuple[TableCopying, CopyRange]


class Copies:
    """All copies of an epoch. One thread uses it."""

    def __init__(self, nursery: Nursery, settings: WorkerSettings, most_workers: int, range_done: RangeDone) -> None:
        self._nursery = nursery
        self._settings = settings
        self._most_workers = most_workers
        self._range_done = range_done
        self._tables: list[TableCopying] = []
        self._busy: dict[Worker, Assignment] = {}
        self._idle: list[Worker] = []

    def tables(self) -> set[TableName]:
        return {copy.name for copy in self._tables}

    def warm(self, ranges: int) -> None:
        """Starts workers for so many ranges, so that they are ready when the snapshot is."""
        while len(self._busy) + len(self._idle) < min(ranges, self._most_workers):
            self._idle.append(Worker(self._nursery, self._settings))

    def add(self, copy: TableCopying) -> None:
        self._tables.append(copy)
        self._tables.sort(key=lambda each: -each.job.table.size)

    def drop(self, table: TableName) -> None:
        """Forgets a table's copy, whatever it was doing."""
        for copy in [each for each in self._tables if each.name == table]:
            self._end(copy)

    def tend(self, *, expecting: bool) -> list[Ended]:
        """Takes reports, gives ranges to workers that are free, and lets go of workers that nobody needs.

        `expecting`: a snapshot is waited for, and workers that are ready for it stay."""
        ended = list(self._take_reports())
        self._give_ranges()
        if not expecting and not any(copy.waiting for copy in self._tables):
            while self._idle:
                self._idle.pop().dismiss()
        return ended

    def wait(self, seconds: float, stop: threading.Event) -> None:
        """Until a worker says something, so that none is idle for long."""
        if self._busy:
            connection.wait([worker.pipe for worker in self._busy], seconds)
        else:
            stop.wait(seconds)

    def close(self) -> None:
        for copy in list(self._tables):
            self._end(copy)
        while self._idle:
            self._idle.pop().dismiss()

    def _take_reports(self) -> Iterator[Ended]:
        for worker, (copy, part) in list(self._busy.items()):
            if worker not in self._busy:
                continue  # ended with its table, in this very loop
            reports, alive = worker.reports()
            outcome = self._last_word(copy, part, reports)
            if isinstance(outcome, Copied):
                del self._busy[worker]
                self._idle.append(worker)
                copy.done[part] = outcome
                del copy.running[part]
                self._range_done(copy, part, outcome)
            elif outcome is not None or not alive:
                self._end(copy)
                yield Ended(copy, outcome)
                continue
            self._show(copy)
            if not copy.waiting and not copy.running:
                self._end(copy)
                yield Ended(copy, Copied(copy.rows, copy.bytes, final=True))

    def _last_word(self, copy: TableCopying, part: CopyRange, reports: list[Report]) -> Report | None:
        """How the range ended, if it did."""
        for report in reports:
            match report:
                case Copied(final=False):
                    copy.running[part] = report
                case Copied() | FileChanged() | Failed():
                    return report
        return None

    def _give_ranges(self) -> None:
        for copy in self._tables:
            while copy.waiting and len(self._busy) < self._most_workers:
                worker = self._idle.pop() if self._idle else Worker(self._nursery, self._settings)
                if not worker.give(Task(copy.job, copy.waiting[0])):
                    worker.kill()
                    continue
                part = copy.waiting.pop(0)
                copy.running[part] = Copied(0, 0, final=False)
                self._busy[worker] = (copy, part)

    def _end(self, copy: TableCopying) -> None:
        self._tables.remove(copy)
        for worker in [each for each, (other, _) in self._busy.items() if other is copy]:
            del self._busy[worker]
            worker.kill()
        copy.round.leave()

    def _show(self, copy: TableCopying) -> None:
        label = str(copy.name)
        COPIED_ROWS.labels(label).set(copy.rows)
        COPIED_BYTES.labels(label).set(copy.bytes)
        COPIED_SHARE.labels(label).set(copy.share)
        now = time.monotonic()
        left = copy.seconds_left(now)
        COPY_LEFT.labels(label).set(math.nan if left is None else left)
        if now - copy.logged >= _PROGRESS_SECONDS:
            copy.logged = now
            log.info(
                "table copy under way",
                table=label,
                row_count=copy.rows,
                byte_count=copy.bytes,
                percent=round(100 * copy.share),
                seconds_left=None if left is None else round(left),
            )
