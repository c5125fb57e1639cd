"""Checkpoint records in, intervals out: windows with the offset ranges in which their records lie.

Neighbouring windows of one epoch are joined up to a budget; a window with markers ends its interval, for what became
true then holds from there on. An opening stands alone: below its ends lies what a dead epoch left, in no budget.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from apply_spark.progress import TableProgress
from schemas.checkpoint import Checkpoint, Marker, Moved
from schemas.epochs import EpochRule
from schemas.identifiers import Epoch, LogId, SchemaId
from schemas.lsn import Lsn
from stores.kafka_log import Record
from stores.small_topics import checkpoints


@dataclass(frozen=True)
class Interval:
    """The transactions with start <= commit LSN < lsn, written by one epoch."""

    log_id: LogId
    epoch: Epoch
    start: Lsn
    lsn: Lsn
    commit_ts: int
    emitted_at: int
    moved: Mapping[tuple[str, SchemaId], Moved]
    ends: Mapping[str, int]
    markers: tuple[Marker, ...]
    next_offset: int
    """The checkpoint record after this interval."""
    opens: bool
    counted: Lsn | None = None
    """Where it was cut: the end of the window that its checkpoints counted."""

    @property
    def window_end(self) -> Lsn:
        return self.lsn if self.counted is None else self.counted

    @property
    def rows(self) -> int:
        return sum(moved.rows for moved in self.moved.values())

    @property
    def bytes(self) -> int:
        return sum(moved.bytes for moved in self.moved.values())

    def moved_on(self, topic: str) -> list[Moved]:
        return [moved for moved in self.moved.values() if moved.topic == topic]


@dataclass(frozen=True)
class Budget:
    """How much one interval may hold. A single checkpoint may hold more: it cannot be divided."""

    rows: int
    bytes: int


def accepted(records: Iterable[Record], rule: EpochRule) -> Iterator[tuple[int, Checkpoint]]:
    """The checkpoints that count, by the epoch rule, in log order."""
    return ((offset, checkpoint) for offset, checkpoint in checkpoints(records) if rule.accepts(checkpoint))


def intervals(numbered: Iterable[tuple[int, Checkpoint]], budget: Budget) -> Generator[Interval, None, None]:
    joined: Interval | None = None
    for offset, checkpoint in numbered:
        single = _interval(offset, checkpoint)
        if joined is None:
            joined = single
        elif _may_join(joined, single, budget):
            joined = _join(joined, single)
        else:
            yield joined
            joined = single
    if joined is not None:
        yield joined


def _interval(offset: int, checkpoint: Checkpoint) -> Interval:
    return Interval(
        log_id=checkpoint.log_id,
        epoch=checkpoint.epoch,
        start=checkpoint.start,
        lsn=checkpoint.lsn,
        commit_ts=checkpoint.commit_ts,
        emitted_at=checkpoint.emitted_at,
        moved={(moved.topic, moved.schema_id): moved for moved in checkpoint.moved},
        ends={topic: offsets[0] for topic, offsets in (checkpoint.ends or {}).items()},
        markers=checkpoint.markers,
        next_offset=offset + 1,
        opens=checkpoint.opens,
    )


def _may_join(first: Interval, second: Interval, budget: Budget) -> bool:
    return (
        not (first.opens or second.opens)
        and not first.markers
        and first.epoch == second.epoch
        and first.lsn == second.start
        and first.rows + second.rows <= budget.rows
        and first.bytes + second.bytes <= budget.bytes
    )


def _join(first: Interval, second: Interval) -> Interval:
    moved = dict(first.moved)
    for key, more in second.moved.items():
        known = moved.get(key)
        if known is not None:
            more = replace(more, rows=known.rows + more.rows, bytes=known.bytes + more.bytes)  # noqa: PLW2901
        moved[key] = more
    return replace(second, start=first.start, moved=moved, ends={**first.ends, **second.ends})


def cut(interval: Interval, lsn: Lsn) -> Interval:
    """The part of one checkpoint's interval that lies before `lsn`, a bound inside its window.

    Whoever has applied it stands before that checkpoint still, and can go on with the rest of it. The markers are left
    out: some may be true after `lsn` only."""
    return replace(interval, lsn=lsn, counted=interval.lsn, next_offset=interval.next_offset - 1, markers=())


def advanced(table: TableProgress, interval: Interval, topic: str) -> TableProgress:
    """The table after the interval, whether or not it had rows there. A copy newer than the interval stays ahead."""
    taken_on = table.shapes_before(interval.lsn)
    return replace(
        table,
        lsn=max(table.lsn, interval.lsn),
        epoch=interval.epoch,
        log_offset=interval.next_offset,
        topic_offset=table.topic_offset if interval.counted else interval.ends.get(topic, table.topic_offset),
        schema_id=taken_on[-1].schema_id if taken_on else table.schema_id,
        ahead=table.ahead[len(taken_on) :],
        attempts=0,
    )


def is_gap(table: TableProgress, interval: Interval) -> bool:
    """Whether transactions lie between the table and the interval that no checkpoint speaks of."""
    return interval.start > table.lsn
