"""What Postgres may forget: only what every required destination reported, of this log, up to a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture.acknowledgement import Acknowledgement, Released
from capture.config import Policy
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
    start: int = 100,
    anything: bool = False,
) -> Acknowledgement:
    return Acknowledgement(policy, required, LOG, Released(Lsn(start), anything), reports)


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
        reports.tell(destination, told[destination])
        moved = acknowledgement.update(Lsn(checkpoint))

        assert moved is (acknowledgement.flushed > before)
        assert before <= acknowledgement.flushed <= best_checkpoint
        assert acknowledgement.flushed <= min(told.get(LAKE, 0), told.get(WAREHOUSE, 0))
