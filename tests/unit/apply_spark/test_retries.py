"""When a table that is held is tried again: later each time, up to a bound, from its first failure to its success."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apply_spark.config import ApplyTuning
from apply_spark.errors import DestinationFull, DestinationLocked, NotHeld, NotPermitted, PartialRow, RowsMissing
from apply_spark.intervals import advanced
from apply_spark.progress import TableProgress
from apply_spark.retries import held, is_due, wait_after
from schemas.errors import PenstockError, Retry
from schemas.lsn import Lsn
from schemas.phases import Errored, Ready, SyncDone
from tests.unit.apply_spark.test_intervals import a_checkpoint, made_of
from tests.unit.apply_spark.test_progress import a_table

SECOND = 1_000_000
TUNING = ApplyTuning(retry_first=timedelta(seconds=10), retry_most=timedelta(minutes=10))
LOCKED = DestinationLocked("Somebody has it.")
NOW = 1_700_000_000 * SECOND


def failed(table: TableProgress, now: int, error: PenstockError = LOCKED) -> TableProgress:
    errored = held(table, error, now, TUNING)
    return replace(table, phase=errored, attempts=errored.attempt)


def test_the_wait_doubles_up_to_its_bound() -> None:
    waits = [wait_after(attempt, TUNING) // SECOND for attempt in range(1, 10)]

    assert waits == [10, 20, 40, 80, 160, 320, 600, 600, 600]


@given(st.integers(1, 10**9), st.timedeltas(min_value=timedelta(microseconds=1)), st.timedeltas(timedelta(seconds=1)))
def test_no_wait_is_shorter_than_the_one_before_or_above_the_bound(
    attempt: int, first: timedelta, most: timedelta
) -> None:
    tuning = ApplyTuning(retry_first=first, retry_most=most)

    assert 0 < wait_after(attempt, tuning) <= wait_after(attempt + 1, tuning) <= most // timedelta(microseconds=1)


@given(st.integers(1, 50), st.integers(0, 700 * SECOND))
def test_a_table_is_due_from_its_time_on_and_not_before(failures: int, after: int) -> None:
    table = a_table(phase=Ready())
    for _ in range(failures):
        table = failed(table.released(), NOW)

    assert is_due(table, NOW + after, TUNING) is (after >= wait_after(failures, TUNING))


def test_a_time_that_a_wrong_clock_has_set_is_not_waited_for() -> None:
    table = failed(a_table(phase=Ready()), NOW + 10**6 * SECOND)

    assert is_due(table, NOW, TUNING)


def test_a_paused_table_is_not_tried_again() -> None:
    table = failed(a_table(phase=Ready()), NOW)

    assert not is_due(replace(table, paused=True), NOW + 3600 * SECOND, TUNING)


@pytest.mark.parametrize(
    ("kind", "retry"),
    [
        (DestinationLocked, Retry.TIMED),
        (NotPermitted, Retry.TIMED),
        (DestinationFull, Retry.TIMED),
        (NotHeld, Retry.MANUAL),
        (PartialRow, Retry.MANUAL),
        (RowsMissing, Retry.MANUAL),
    ],
)
def test_only_what_time_may_heal_gets_a_time(kind: type[PenstockError], retry: Retry) -> None:
    table = failed(a_table(phase=Ready()), NOW, kind("why"))

    assert isinstance(table.phase, Errored)
    assert table.phase.retry is retry
    assert (table.phase.next_try is not None) is (retry is Retry.TIMED)
    assert is_due(table, NOW + 3600 * SECOND, TUNING) is (retry is Retry.TIMED)


def test_failures_are_counted_over_tries_and_restarts_and_forgotten_once_the_table_moves() -> None:
    once = failed(a_table(phase=Ready()), NOW)
    restarted = TableProgress.from_json(once.to_json())

    twice = failed(restarted.released(), NOW)
    (interval,) = made_of(a_checkpoint(100, 200))
    moved = advanced(twice.released(), interval, "topic")

    assert isinstance(twice.phase, Errored)
    assert (twice.phase.attempt, twice.phase.next_try) == (2, NOW + 20 * SECOND)
    assert (moved.attempts, moved.phase) == (0, SyncDone(Lsn(100)))
