"""Epochs follow each other: whoever is away is waited for, however long, and nothing is held meanwhile."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest

from capture.epochs import Epoch, run_epochs
from stores.kafka_errors import BrokerUnreachable, TopicMissing

HOUR = 3600.0
AWAY = (BrokerUnreachable,)


class Stop(threading.Event):
    """Waits take no time; they are added up."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []
        self.open_parts = 0
        self.held: set[int] = set()

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waits.append(timeout)
        self.held.add(self.open_parts)
        return self.is_set()


class Opened:
    """An epoch that ends as it is told, and then the stop comes."""

    def __init__(self, ends_with: Exception | None = None) -> None:
        self._ends_with = ends_with

    def run(self, stop: threading.Event) -> None:
        if self._ends_with is not None:
            raise self._ends_with
        stop.set()


def away() -> BrokerUnreachable:
    return BrokerUnreachable("No Kafka broker answered.")


def count_parts(stop: Stop, parts: ExitStack) -> None:
    def closed() -> None:
        stop.open_parts -= 1

    stop.open_parts += 1
    parts.callback(closed)


def test_a_broker_that_is_away_for_hours_is_waited_for_with_nothing_held() -> None:
    stop, ran = Stop(), []

    def opened(parts: ExitStack) -> Epoch:
        count_parts(stop, parts)
        if sum(stop.waits) < 3 * HOUR:
            raise away()
        ran.append(1)
        return Opened()

    run_epochs(opened, AWAY, stop)

    assert ran == [1]
    assert max(stop.waits) <= 5.0, "it comes back without much delay"
    assert stop.held == {0}, "clients of the epoch that could not be opened were kept while it waited"


def test_an_epoch_that_ended_is_followed_by_another_soon_however_long_was_waited_before() -> None:
    stop = Stop()
    epochs = iter([*[away()] * 10, Opened(away()), Opened()])

    def opened(_parts: ExitStack) -> Epoch:
        found = next(epochs)
        if isinstance(found, Exception):
            raise found
        return found

    run_epochs(opened, AWAY, stop)

    assert stop.waits[-1] == stop.waits[0] < stop.waits[-2]


def test_what_does_not_come_back_by_itself_ends_it_and_a_stop_is_no_error() -> None:
    stop = Stop()

    def missing(_parts: ExitStack) -> Epoch:
        raise TopicMissing("A topic does not exist.")

    def interrupted(_parts: ExitStack) -> Epoch:
        raise InterruptedError

    with pytest.raises(TopicMissing):
        run_epochs(missing, AWAY, stop)
    run_epochs(interrupted, AWAY, stop)

    assert stop.waits == []
