"""What Postgres may forget: only what every required destination reported, of this log, up to a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from capture.acknowledgement import Acknowledgement, Released
from schemas.acknowledge import AcknowledgeConfig, Policy
from schemas.feedback import Feedback
from schemas.identifiers import DestinationName, LogId
from schemas.lsn import Lsn
from stores.kafka_log import Record

LAKE, WAREHOUSE, LATE = DestinationName("lake"), DestinationName("warehouse"), DestinationName("late")
LOG = LogId("log")


@dataclass
class Reports:
    """The feedback topic as its reader sees it: what came since the last look."""

    waiting: list[Record] = field(default_factory=list)

    def tell(self, destination: DestinationName, lsn: int, log_id: LogId = LOG) -> None:
        feedback = Feedback(destination, log_id, Lsn(lsn), commit_ts=0, applied_at=0)
        self.waiting.append(Record(0, destination.encode(), feedback.encode(), 0))

    def forget(self, destination: DestinationName) -> None:
        self.waiting.append(Record(0, destination.encode(), None, 0))

    def new(self) -> Iterator[Record]:
        while self.waiting:
            yield self.waiting.pop(0)


@pytest.fixture
def reports() -> Reports:
    return Reports()


def an_acknowledgement(
    reports: Reports,
    *required: DestinationName,
    policy: Policy = Policy.DESTINATIONS,
    max_wal: int | None = None,
    start: int = 100,
    anything: bool = False,
) -> Acknowledgement:
    configured = AcknowledgeConfig(policy=policy, max_wal=max_wal)
    return Acknowledgement(configured, required, LOG, Released(Lsn(start), anything), reports)


def test_nothing_is_acknowledged_before_a_destination_reported(reports: Reports) -> None:
    acknowledgement = an_acknowledgement(reports, LAKE)

    assert not acknowledgement.update(Lsn(500))
    assert acknowledgement.flushed == 100


def test_the_slowest_required_destination_decides(reports: Reports) -> None:
    acknowledgement = an_acknowledgement(reports, LAKE, WAREHOUSE)
    reports.tell(LAKE, 300)
    reports.tell(WAREHOUSE, 200)

    assert acknowledgement.update(Lsn(500))
    assert acknowledgement.flushed == 200


def test_a_destination_that_is_not_required_holds_nothing_back(reports: Reports) -> None:
    acknowledgement = an_acknowledgement(reports, LAKE)
    reports.tell(LAKE, 300)
    reports.tell(LATE, 1)

    assert acknowledgement.update(Lsn(500))
    assert acknowledgement.flushed == 300


def test_a_required_destination_that_never_reported_holds_everything_back(reports: Reports) -> None:
    acknowledgement = an_acknowledgement(reports, LAKE, WAREHOUSE)
    reports.tell(LAKE, 300)

    assert not acknowledgement.update(Lsn(500))


def test_a_destination_that_joined_late_holds_wal_back_only_once_it_has_caught_up(reports: Reports) -> None:
    acknowledgement = an_acknowledgement(reports, LAKE, LATE, anything=True)
    reports.tell(LAKE, 300)
    assert acknowledgement.update(Lsn(500))

    reports.tell(LATE, 150)
    reports.tell(LAKE, 400)
    assert acknowledgement.update(Lsn(500))
    assert acknowledgement.flushed == 400

    reports.tell(LATE, 450)
    reports.tell(LAKE, 500)
    assert acknowledgement.update(Lsn(500))
    assert acknowledgement.flushed == 450


def test_a_report_about_another_log_does_not_count(reports: Reports) -> None:
    acknowledgement = an_acknowledgement(reports, LAKE)
    reports.tell(LAKE, 300, LogId("topics that were recreated"))

    assert not acknowledgement.update(Lsn(500))


def test_a_report_above_the_last_checkpoint_is_cut_down_to_it(reports: Reports) -> None:
    acknowledgement = an_acknowledgement(reports, LAKE)
    reports.tell(LAKE, 900)

    assert acknowledgement.update(Lsn(500))
    assert acknowledgement.flushed == 500


def test_it_never_goes_backwards(reports: Reports) -> None:
    acknowledgement = an_acknowledgement(reports, LAKE)
    reports.tell(LAKE, 300)
    acknowledgement.update(Lsn(500))
    reports.tell(LAKE, 200)

    assert not acknowledgement.update(Lsn(500))
    assert acknowledgement.flushed == 300


def test_what_was_reported_before_counts_until_there_is_news(reports: Reports) -> None:
    acknowledgement = an_acknowledgement(reports, LAKE)
    reports.tell(LAKE, 300)
    acknowledgement.update(Lsn(200))

    assert acknowledgement.update(Lsn(400))
    assert acknowledgement.flushed == 300


def test_a_tombstone_on_the_feedback_topic_is_passed_over(reports: Reports) -> None:
    acknowledgement = an_acknowledgement(reports, LAKE)
    reports.forget(LAKE)
    reports.tell(LAKE, 300)

    assert acknowledgement.update(Lsn(500))


@pytest.mark.parametrize("policy", [Policy.KAFKA, Policy.DESTINATIONS])
def test_without_required_destinations_the_checkpoint_is_enough(reports: Reports, policy: Policy) -> None:
    acknowledgement = an_acknowledgement(reports, policy=policy)

    assert acknowledgement.update(Lsn(500))
    assert acknowledgement.flushed == 500


def test_with_the_kafka_policy_destinations_do_not_matter(reports: Reports) -> None:
    acknowledgement = an_acknowledgement(reports, LAKE, policy=Policy.KAFKA)

    assert acknowledgement.update(Lsn(500))
    assert acknowledgement.flushed == 500


def test_a_report_that_is_lower_than_one_before_came_late_and_lets_nothing_go(reports: Reports) -> None:
    acknowledgement = an_acknowledgement(reports, LAKE, WAREHOUSE)
    reports.tell(LAKE, 200)
    reports.tell(WAREHOUSE, 200)
    acknowledgement.update(Lsn(500))

    reports.tell(LAKE, 150)
    reports.tell(WAREHOUSE, 300)
    acknowledgement.update(Lsn(500))

    assert acknowledgement.flushed == 200
    assert acknowledgement.holders == (LAKE,)


def test_what_was_heard_before_the_first_decision_counts_for_it(reports: Reports) -> None:
    acknowledgement = an_acknowledgement(reports, LAKE, WAREHOUSE, start=200, anything=True)
    reports.tell(LAKE, 150)
    reports.tell(WAREHOUSE, 300)
    reports.tell(LAKE, 200)

    acknowledgement.hear(reports.new())
    acknowledgement.update(Lsn(500))

    assert acknowledgement.flushed == 200, "the lake is level, and is waited for"


@given(st.lists(st.tuples(st.sampled_from([LAKE, WAREHOUSE]), st.integers(0, 900), st.integers(0, 900)), max_size=20))
def test_whatever_comes_it_is_monotonic_and_below_checkpoint_and_every_report(
    news: list[tuple[DestinationName, int, int]],
) -> None:
    reports = Reports()
    acknowledgement = an_acknowledgement(reports, LAKE, WAREHOUSE, start=0)
    told: dict[DestinationName, int] = {}
    best_checkpoint = 0

    for destination, lsn, checkpoint in news:
        before = acknowledgement.flushed
        told[destination] = max(lsn, told.get(destination, 0))
        best_checkpoint = max(best_checkpoint, checkpoint)
        reports.tell(destination, lsn)
        moved = acknowledgement.update(Lsn(checkpoint))

        assert moved is (acknowledgement.flushed > before)
        assert before <= acknowledgement.flushed <= best_checkpoint
        assert acknowledgement.flushed <= min(told.get(LAKE, 0), told.get(WAREHOUSE, 0))


def a_bounded_one(reports: Reports, *required: DestinationName, max_wal: int = 100) -> Acknowledgement:
    return an_acknowledgement(reports, *required, policy=Policy.BOUNDED, max_wal=max_wal)


def test_within_the_bound_the_destinations_decide(reports: Reports) -> None:
    acknowledgement = a_bounded_one(reports, LAKE, WAREHOUSE)
    reports.tell(LAKE, 160)
    reports.tell(WAREHOUSE, 120)

    acknowledgement.update(Lsn(200), wal_end=Lsn(220))

    assert acknowledgement.flushed == 120
    assert acknowledgement.holders == (WAREHOUSE,)


def test_past_the_bound_the_first_checkpoint_that_is_within_it_is_acknowledged(reports: Reports) -> None:
    acknowledgement = a_bounded_one(reports, LAKE)
    reports.tell(LAKE, 100)
    for checkpoint in (140, 180, 220, 260):
        acknowledgement.update(Lsn(checkpoint))

    acknowledgement.update(Lsn(260), wal_end=Lsn(290))

    assert acknowledgement.flushed == 220
    assert acknowledgement.holders == (LAKE,)


def test_past_the_bound_the_last_checkpoint_is_the_most_that_is_acknowledged(reports: Reports) -> None:
    acknowledgement = a_bounded_one(reports, LAKE)

    acknowledgement.update(Lsn(200), wal_end=Lsn(5_000))

    assert acknowledgement.flushed == 200


def test_a_destination_that_was_cut_off_is_waited_for_again_once_it_has_caught_up(reports: Reports) -> None:
    acknowledgement = a_bounded_one(reports, LAKE, WAREHOUSE)
    reports.tell(LAKE, 290)
    reports.tell(WAREHOUSE, 110)
    acknowledgement.update(Lsn(300))
    assert acknowledgement.flushed == 290, "the first checkpoint within the bound is the one that the lake has"

    reports.tell(LAKE, 340)
    acknowledgement.update(Lsn(350))
    assert acknowledgement.flushed == 340, "the others decide without it"

    reports.tell(WAREHOUSE, 345)
    reports.tell(LAKE, 350)
    acknowledgement.update(Lsn(350))
    assert acknowledgement.flushed == 345


def test_the_bound_is_warned_of_once_for_each_time_that_it_is_passed(reports: Reports) -> None:
    acknowledgement = a_bounded_one(reports, LAKE)

    with capture_logs() as first:
        for checkpoint in range(300, 2_000, 10):
            acknowledgement.update(Lsn(checkpoint))
    with capture_logs() as back:
        reports.tell(LAKE, 1_990)
        acknowledgement.update(Lsn(1_990))
    with capture_logs() as second:
        acknowledgement.update(Lsn(2_500))

    assert [(each["log_level"], each["destination"]) for each in first] == [("warning", LAKE)]
    assert [(each["event"], each["destination"]) for each in back] == [("destination is within max_wal again", LAKE)]
    assert [(each["log_level"], each["destination"]) for each in second] == [("warning", LAKE)]


def test_of_very_many_checkpoints_enough_are_remembered_to_keep_most_of_the_bound(reports: Reports) -> None:
    acknowledgement = a_bounded_one(reports, LAKE, max_wal=90_000)
    for checkpoint in range(200, 100_000, 10):
        acknowledgement.update(Lsn(checkpoint))

    acknowledgement.update(Lsn(99_990), wal_end=Lsn(120_000))

    assert len(acknowledgement._checkpoints) <= 1_000
    assert 30_000 <= acknowledgement.flushed <= 30_500


def test_a_switch_takes_effect_and_takes_nothing_back(reports: Reports) -> None:
    acknowledgement = an_acknowledgement(reports, LAKE)
    reports.tell(LAKE, 150)
    acknowledgement.update(Lsn(300))
    assert acknowledgement.flushed == 150

    acknowledgement.switch(AcknowledgeConfig(policy=Policy.KAFKA))
    acknowledgement.update(Lsn(400))
    assert acknowledgement.flushed == 400
    assert acknowledgement.holders == ()

    acknowledgement.switch(None)
    reports.tell(LAKE, 390)
    assert not acknowledgement.update(Lsn(500))
    reports.tell(LAKE, 450)
    acknowledgement.update(Lsn(500))
    assert acknowledgement.flushed == 450


@given(
    st.lists(st.tuples(st.sampled_from([LAKE, WAREHOUSE]), st.integers(0, 60), st.integers(0, 90)), max_size=40),
    st.integers(1, 400),
    st.booleans(),
)
def test_whatever_comes_the_bound_acknowledges_checkpoints_only_and_leaves_no_more_than_it_must(
    news: list[tuple[DestinationName, int, int]],
    max_wal: int,
    anything: bool,  # noqa: FBT001 -- hypothesis calls it so
) -> None:
    reports = Reports()
    acknowledgement = an_acknowledgement(
        reports, LAKE, WAREHOUSE, policy=Policy.BOUNDED, max_wal=max_wal, start=0, anything=anything
    )
    checkpoints = [0]
    end = 0

    for destination, step, written in news:
        before = acknowledgement.flushed
        end += written
        checkpoints.append(checkpoints[-1] + step if checkpoints[-1] + step <= end else checkpoints[-1])
        reports.tell(destination, checkpoints[len(checkpoints) // 2])
        acknowledgement.update(Lsn(checkpoints[-1]), wal_end=Lsn(end))

        assert before <= acknowledgement.flushed <= checkpoints[-1]
        assert acknowledgement.flushed in checkpoints
        assert end - acknowledgement.flushed <= max(max_wal, end - checkpoints[-1])
