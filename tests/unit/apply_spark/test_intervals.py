"""Checkpoints to intervals: what is joined, what is not, and what counts at all."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apply_spark.intervals import Budget, Interval, accepted, advanced, cut, intervals, is_gap
from apply_spark.progress import ShapeAhead, TableProgress
from schemas.checkpoint import Checkpoint, Moved, TableRemoved
from schemas.epochs import EpochRule
from schemas.identifiers import Epoch, LogId, SchemaId, TableName
from schemas.lsn import Lsn, Position
from schemas.phases import Ready
from stores.kafka_log import Record

ROOMY = Budget(rows=1_000_000, bytes=1_000_000)
REMOVED = TableRemoved(TableName("public", "orders"))


def a_checkpoint(start: int, lsn: int, *, epoch: int = 1, rows: int = 0, topic: str = "t", **more: Any) -> Checkpoint:  # noqa: ANN401 -- fields of a checkpoint
    moved = (Moved(topic, SchemaId(5), rows, rows * 10),) if rows else ()
    fields: dict[str, Any] = {"opens": False, "moved": moved, "ends": {topic: (lsn,)} if rows else {}}
    return Checkpoint(
        log_id=LogId("log"),
        epoch=Epoch(epoch),
        start=Lsn(start),
        lsn=Lsn(lsn),
        commit_ts=lsn,
        emitted_at=lsn,
        **(fields | more),
    )


def an_opening(lsn: int, epoch: int, **ends: int) -> Checkpoint:
    return a_checkpoint(lsn, lsn, epoch=epoch, opens=True, ends={topic: (end,) for topic, end in ends.items()})


def a_table(lsn: int = 100, topic_offset: int = 7) -> TableProgress:
    return TableProgress(
        table=TableName("public", "orders"),
        phase=Ready(),
        generation=Lsn(1),
        schema_id=SchemaId(5),
        lsn=Lsn(lsn),
        epoch=Epoch(1),
        log_offset=3,
        topic_offset=topic_offset,
    )


def made_of(*checkpoints: Checkpoint, budget: Budget = ROOMY) -> list[Interval]:
    return list(intervals(enumerate(checkpoints), budget))


def windows(found: list[Interval]) -> list[tuple[int, int]]:
    return [(interval.start, interval.lsn) for interval in found]


def accepted_lsns(*checkpoints: Checkpoint, live: int | None = None) -> list[int]:
    records = [Record(offset, None, each.encode(), 0) for offset, each in enumerate(checkpoints)]
    return [each.lsn for _, each in accepted(records, EpochRule(Epoch(live) if live is not None else None))]


def test_neighbours_become_one_interval_with_all_that_they_hold() -> None:
    first = a_checkpoint(10, 20, rows=3, topic="a")
    second = a_checkpoint(20, 30, rows=4, topic="b")
    third = a_checkpoint(30, 40, rows=5, topic="a")

    (joined,) = made_of(first, second, third)

    assert (joined.start, joined.lsn, joined.commit_ts, joined.next_offset) == (10, 40, 40, 3)
    assert joined.rows == 12
    assert joined.bytes == 120
    assert joined.moved_on("a") == [Moved("a", SchemaId(5), 8, 80)]
    assert joined.moved_on("b") == [Moved("b", SchemaId(5), 4, 40)]
    assert joined.ends == {"a": 40, "b": 30}


def test_rows_of_two_shapes_of_a_table_are_counted_apart() -> None:
    one, other = Moved("t", SchemaId(5), 1, 10), Moved("t", SchemaId(6), 2, 20)

    (joined,) = made_of(a_checkpoint(10, 20, moved=(one,)), a_checkpoint(20, 30, moved=(one, other)))

    assert joined.moved_on("t") == [Moved("t", SchemaId(5), 2, 20), other]


def test_windows_that_do_not_touch_are_not_joined() -> None:
    found = made_of(a_checkpoint(10, 20), a_checkpoint(21, 30))

    assert windows(found) == [(10, 20), (21, 30)]


@pytest.mark.parametrize("budget", [Budget(rows=10, bytes=10_000), Budget(rows=10_000, bytes=100)])
def test_an_interval_holds_no_more_than_its_budget(budget: Budget) -> None:
    found = made_of(*(a_checkpoint(lsn, lsn + 10, rows=4) for lsn in (10, 20, 30, 40)), budget=budget)

    assert windows(found) == [(10, 30), (30, 50)]


def test_a_checkpoint_above_the_budget_is_an_interval_of_its_own() -> None:
    small, big = a_checkpoint(10, 20, rows=1), a_checkpoint(20, 30, rows=100)

    found = made_of(small, big, a_checkpoint(30, 40, rows=1), budget=Budget(rows=10, bytes=10_000))

    assert windows(found) == [(10, 20), (20, 30), (30, 40)]


def test_an_interval_ends_with_the_markers_of_its_last_checkpoint() -> None:
    with_marker = a_checkpoint(20, 30, markers=(REMOVED,))

    first, second = made_of(a_checkpoint(10, 20), with_marker, a_checkpoint(30, 40))

    assert (first.start, first.lsn, first.markers) == (10, 30, (REMOVED,))
    assert (second.start, second.lsn, second.markers) == (30, 40, ())


def test_an_opening_is_joined_with_nothing_so_that_what_a_dead_epoch_left_lies_in_no_range_with_rows() -> None:
    found = made_of(a_checkpoint(10, 20), an_opening(20, epoch=2, t=99), a_checkpoint(20, 30, epoch=2, rows=1))

    assert windows(found) == [(10, 20), (20, 20), (20, 30)]
    assert [each.opens for each in found] == [False, True, False]
    assert [(each.rows, each.ends) for each in found[1:]] == [(0, {"t": 99}), (1, {"t": 30})]


def test_windows_of_different_epochs_are_not_joined() -> None:
    found = made_of(a_checkpoint(10, 20, epoch=1), a_checkpoint(20, 30, epoch=2))

    assert windows(found) == [(10, 20), (20, 30)]


@given(
    steps=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20), st.booleans()), max_size=20),
    budget=st.builds(Budget, st.integers(1, 50), st.integers(1, 500)),
)
def test_joining_loses_no_row_no_marker_and_no_window(steps: list[tuple[int, int, bool]], budget: Budget) -> None:
    checkpoints, lsn = [], 0
    for width, rows, marker in steps:
        checkpoints.append(a_checkpoint(lsn, lsn + width, rows=rows, markers=(REMOVED,) if marker else ()))
        lsn += width

    found = made_of(*checkpoints, budget=budget)

    assert sum(interval.rows for interval in found) == sum(rows for _, rows, _ in steps)
    assert sum(len(interval.markers) for interval in found) == sum(marker for _, _, marker in steps)
    assert all(one.lsn == other.start for one, other in pairwise(found))
    assert [interval.next_offset for interval in found[-1:]] == [len(steps)][: len(found)]
    assert all(one.next_offset < other.next_offset for one, other in pairwise(found))


def test_a_zombie_that_writes_after_the_next_epoch_opened_is_not_heard() -> None:
    lsns = accepted_lsns(
        an_opening(10, epoch=1),
        a_checkpoint(10, 20, epoch=1),
        an_opening(20, epoch=2),
        a_checkpoint(20, 31, epoch=1),
        a_checkpoint(20, 32, epoch=2),
        a_checkpoint(31, 41, epoch=1),
        a_checkpoint(32, 42, epoch=2),
    )

    assert lsns == [10, 20, 20, 32, 42]


def test_epochs_are_ordered_by_the_log_and_not_by_their_number() -> None:
    lsns = accepted_lsns(an_opening(10, epoch=9), an_opening(10, epoch=2), a_checkpoint(10, 20, epoch=9))

    assert lsns == [10, 10]


def test_the_epoch_that_lived_at_the_stored_place_goes_on_after_a_restart() -> None:
    lsns = accepted_lsns(a_checkpoint(10, 20, epoch=1), a_checkpoint(10, 21, epoch=2), live=2)

    assert lsns == [21]


def test_where_retention_took_the_opening_the_oldest_record_speaks_for_it() -> None:
    lsns = accepted_lsns(a_checkpoint(10, 20, epoch=5), a_checkpoint(20, 30, epoch=5))

    assert lsns == [20, 30]


def test_a_tombstone_on_the_checkpoints_topic_is_passed_over() -> None:
    record = Record(1, None, a_checkpoint(10, 20).encode(), 0)

    found = list(accepted([Record(0, None, None, 0), record], EpochRule()))

    assert [offset for offset, _ in found] == [1]


def test_a_table_moves_to_the_end_of_the_interval() -> None:
    (interval,) = made_of(a_checkpoint(100, 200, rows=1, epoch=4))

    after = advanced(a_table(), interval, "t")

    assert after == replace(a_table(), lsn=Lsn(200), epoch=Epoch(4), log_offset=1, topic_offset=200)


def test_a_table_without_rows_in_the_interval_moves_too_but_not_on_its_topic() -> None:
    (interval,) = made_of(a_checkpoint(100, 200, rows=1, topic="other"))

    after = advanced(a_table(topic_offset=7), interval, "t")

    assert (after.lsn, after.topic_offset) == (200, 7)


def test_a_table_takes_on_the_shapes_that_the_interval_has_and_keeps_the_others() -> None:
    (interval,) = made_of(a_checkpoint(100, 200))
    ahead = [ShapeAhead(Position(Lsn(lsn), 0), SchemaId(lsn)) for lsn in (100, 199, 200, 300)]

    after = advanced(replace(a_table(), ahead=tuple(ahead)), interval, "t")

    assert (after.schema_id, after.ahead) == (SchemaId(199), tuple(ahead[2:]))


def test_a_table_whose_copy_is_newer_than_the_interval_stays_ahead() -> None:
    (interval,) = made_of(a_checkpoint(100, 200, rows=1))

    after = advanced(a_table(lsn=300), interval, "t")

    assert (after.lsn, after.log_offset) == (300, 1)


@pytest.mark.parametrize(("start", "gap"), [(99, False), (100, False), (101, True)])
def test_a_gap_is_what_lies_between_a_table_and_an_interval_that_begins_above_it(start: int, *, gap: bool) -> None:
    (interval,) = made_of(a_checkpoint(start, 200))

    assert is_gap(a_table(lsn=100), interval) is gap


def test_a_cut_interval_counts_its_whole_window_and_leaves_its_reader_before_the_checkpoint() -> None:
    (whole,) = made_of(a_checkpoint(100, 200, rows=3, markers=(REMOVED,)))

    part = cut(whole, Lsn(150))
    after = advanced(a_table(lsn=100, topic_offset=7), part, "t")

    assert (part.start, part.lsn, part.window_end, part.rows, part.markers) == (100, 150, 200, 3, ())
    assert (after.lsn, after.log_offset, after.topic_offset) == (150, 0, 7)
    assert not is_gap(after, whole)
