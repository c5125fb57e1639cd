"""When so much was reached, from checkpoints and from feedback."""

from __future__ import annotations

import pytest

from benchmarks.timeline import Timeline, applied, captured, first_at, moving
from schemas.checkpoint import Checkpoint, Moved
from schemas.feedback import Feedback
from schemas.identifiers import DestinationName, Epoch, LogId, SchemaId
from schemas.lsn import Lsn

LOG = LogId("log")


def checkpoint(second: float, lsn: int, *rows: int) -> Checkpoint:
    moved = tuple(Moved(f"topic{index}", SchemaId(1), count, 0) for index, count in enumerate(rows))
    return Checkpoint(LOG, Epoch(1), False, Lsn(0), Lsn(lsn), 0, int(second * 1e6), moved)


def feedback(second: float, lsn: int) -> Feedback:
    return Feedback(DestinationName("lake"), LOG, Lsn(lsn), 0, int(second * 1e6))


def test_between_two_points_it_moves_evenly() -> None:
    timeline = Timeline(((10.0, 0.0), (12.0, 100.0), (13.0, 400.0)))

    assert timeline.when(0) == 10.0
    assert timeline.when(50) == 11.0
    assert timeline.when(100) == 12.0
    assert timeline.when(250) == 12.5


def test_what_was_not_reached_has_no_moment() -> None:
    with pytest.raises(ValueError, match=r"only 100 of 101"):
        Timeline(((10.0, 0.0), (12.0, 100.0))).when(101)


def test_a_timeline_that_goes_back_is_refused() -> None:
    with pytest.raises(ValueError, match="does not go back"):
        Timeline(((10.0, 5.0), (12.0, 4.0)))


def test_capture_counts_the_rows_of_all_topics_from_the_start_of_the_stream() -> None:
    timeline = captured(5.0, [checkpoint(5.1, 1), checkpoint(6.0, 2, 10, 20), checkpoint(7.0, 3, 70)])

    assert timeline.points == ((5.0, 0.0), (5.1, 0.0), (6.0, 30.0), (7.0, 100.0))


def test_apply_has_the_rows_of_the_checkpoints_that_its_feedback_covers() -> None:
    checkpoints = [checkpoint(1.0, 100, 10), checkpoint(2.0, 200, 20), checkpoint(3.0, 300, 30)]

    timeline = applied(checkpoints, [feedback(10.0, 50), feedback(11.0, 199), feedback(12.0, 300)])

    assert timeline.points == ((10.0, 0.0), (11.0, 10.0), (12.0, 60.0))


def test_waiting_before_the_first_row_and_after_the_last_is_not_counted() -> None:
    timeline = Timeline(((1.0, 0.0), (5.0, 0.0), (6.0, 10.0), (7.0, 20.0), (60.0, 20.0)))

    assert moving(timeline).points == ((5.0, 0.0), (6.0, 10.0), (7.0, 20.0))


def test_a_commit_is_there_with_the_first_feedback_that_covers_it() -> None:
    told = [feedback(1.0, 100), feedback(2.0, 200), feedback(3.0, 200)]

    assert first_at(told, Lsn(100)) == 1.0
    assert first_at(told, Lsn(101)) == 2.0
    assert first_at(told, Lsn(201)) is None
