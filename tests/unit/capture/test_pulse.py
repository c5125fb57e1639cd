"""What is done beside the pulse ends with it, and nothing of it goes on after an error."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from capture.pulse import Pulse
from schemas.lsn import NOWHERE


@pytest.fixture
def pulse() -> Iterator[Pulse]:
    silent: Any = SimpleNamespace(read_ahead=lambda: None, report=lambda *_args, **_kwargs: None)
    acknowledgement: Any = SimpleNamespace(flushed=NOWHERE)
    with Pulse(silent, acknowledgement, seconds=60.0) as pulse:
        yield pulse


def beside() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("beside-the-pulse")]


def test_no_thread_is_left_when_the_epoch_ends(pulse: Pulse) -> None:
    told = pulse.during(lambda: pulse.during(lambda: len(beside())))

    pulse.__exit__(None, None, None)

    assert told == 2
    assert beside() == []


@pytest.mark.parametrize("way", ["during", "while asking"])
def test_a_wait_that_is_given_up_is_over_when_the_reason_is_raised(pulse: Pulse, way: str) -> None:
    given_up, ended = threading.Event(), threading.Event()

    def work() -> None:
        given_up.wait(30)
        ended.set()

    def gone(*_args: object) -> None:
        raise ConnectionError("gone")

    if way == "during":
        pulse.watch(gone, given_up.set)
        with pytest.raises(ConnectionError):
            pulse.during(work)
    else:
        pulse.beat = gone  # type: ignore[method-assign]
        with pytest.raises(ConnectionError):
            pulse.while_asking(work, given_up.set)

    assert ended.is_set()
