"""A pause before what is measured, until the machine is as fast as it was."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.rest import Rest, speed_tried


def resting(*tries: float, most: float = 30.0) -> tuple[Rest, list[float]]:
    left: Iterator[float] = iter(tries)
    slept: list[float] = []
    return Rest(most, tried=lambda: next(left), sleep=slept.append), slept


def test_the_first_step_begins_at_once_and_so_does_one_on_a_machine_as_fast_as_before() -> None:
    rest, slept = resting(0.20, 0.22)

    assert [rest.take(), rest.take()] == [0.0, 0.0]
    assert not slept


def test_a_slower_machine_rests_until_it_is_as_fast_as_its_best() -> None:
    rest, slept = resting(0.40, 0.20, 0.40, 0.30, 0.21)

    assert [rest.take() for _ in range(3)] == [0.0, 0.0, 4.0]
    assert slept == [2.0, 2.0]


def test_a_machine_that_stays_slow_is_measured_as_it_is() -> None:
    rest, _ = resting(0.20, *[0.40] * 10, most=6.0)
    rest.take()

    assert rest.take() == 6.0


def test_the_speed_of_this_machine_can_be_tried() -> None:
    assert speed_tried() > 0
