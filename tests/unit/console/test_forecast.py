"""The growth of the slot's WAL, from checkpoints and feedback alone."""

from __future__ import annotations

import pytest

from console.forecast import wal_growth
from schemas.checkpoint import Checkpoint, Moved
from schemas.feedback import Feedback
from schemas.identifiers import DestinationName, Epoch, LogId, SchemaId
from schemas.lsn import Lsn

SECOND = 1_000_000
NOW = 100_000 * SECOND
LAKE = DestinationName("lake")


def ago(seconds: float) -> int:
    return NOW - int(seconds * SECOND)


def a_checkpoint(lsn: int, emitted: float, committed: float | None = None, *, opens: bool = False) -> Checkpoint:
    """Emitted so many seconds ago; with rows, if it has a commit."""
    moved = (Moved("shop.public.orders", SchemaId(1), 1, 10),) if committed is not None else ()
    commit_ts = ago(committed) if committed is not None else 0
    return Checkpoint(LogId("log"), Epoch(1), opens, Lsn(0), Lsn(lsn), commit_ts, ago(emitted), moved)


def a_feedback(lsn: int, applied: float, log_id: str = "log") -> Feedback:
    return Feedback(LAKE, LogId(log_id), Lsn(lsn), 0, ago(applied))


STEADY = [a_checkpoint(10_000 - 100 * seconds, seconds) for seconds in range(60, 0, -1)]
"""100 bytes a second for a minute; the WAL ends at 10,000 now."""


def growth(
    holders: list[str], recent: list[Feedback], checkpoints: list[Checkpoint] = STEADY, wal: int = 10_000
) -> float | None:
    return wal_growth(Lsn(wal), NOW, checkpoints, recent, holders)


def test_a_destination_that_stands_still_lets_wal_grow_as_it_is_written() -> None:
    assert growth(["lake"], [a_feedback(3_000, 1_000)]) == pytest.approx(100)


def test_a_destination_that_never_reported_or_spoke_of_another_log_stands_still() -> None:
    assert growth(["lake"], []) == growth(["lake"], [a_feedback(9_000, 50, "older")]) == pytest.approx(100)


def test_a_destination_that_is_slow_lets_wal_grow_by_the_difference() -> None:
    assert growth(["lake"], [a_feedback(4_000, 40), a_feedback(5_200, 1)]) == pytest.approx(100 - 30)


def test_a_destination_that_catches_up_lets_wal_shrink() -> None:
    assert growth(["lake"], [a_feedback(1_000, 40), a_feedback(9_000, 1)]) == pytest.approx(100 - 200)


def test_the_slowest_of_those_that_hold_counts() -> None:
    screen = Feedback(DestinationName("screen"), LogId("log"), Lsn(9_000), 0, ago(40))

    assert growth(["lake", "screen"], [a_feedback(1_000, 40), screen, a_feedback(9_000, 1)]) == pytest.approx(100)


def test_capture_that_keeps_up_holds_no_more_and_more() -> None:
    found = growth(["capture"], [])

    assert found is not None
    assert found < 5


def test_capture_that_has_ended_lets_wal_grow_since_its_last_checkpoint() -> None:
    assert growth(["capture"], [], [a_checkpoint(4_000, 7_200)], wal=4_000 + 7_200 * 50) == pytest.approx(50)


def test_where_nobody_holds_nothing_grows() -> None:
    assert growth([], []) == 0


def test_a_backlog_that_capture_works_off_is_not_taken_for_wal_that_is_written_now() -> None:
    late = [
        a_checkpoint(1_000, 20, opens=True),
        a_checkpoint(5_000, 15, committed=500),
        a_checkpoint(8_000, 10, committed=200),
        a_checkpoint(9_000, 5, committed=100),
    ]

    assert growth(["lake"], [], late) == pytest.approx(2_000 / 200)


def test_only_the_last_five_minutes_count() -> None:
    checkpoints = [a_checkpoint(0, 4_000), a_checkpoint(1_000, 200), a_checkpoint(9_000, 1)]

    assert growth(["lake"], [], checkpoints) == pytest.approx(9_000 / 200)


def test_too_little_seen_is_no_forecast() -> None:
    assert growth(["lake"], [], [a_checkpoint(0, 2)]) is None
    assert growth(["lake"], [], []) is None
    assert growth(["lake"], [a_feedback(0, 2)]) is None
