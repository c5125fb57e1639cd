"""A pace is kept on average, without bursts, and whoever waits for it stays alive."""

from __future__ import annotations

from capture.table_sync.pace import Pace


class Clock:
    """Time goes on only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.looks = 0

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def look(self) -> None:
        self.looks += 1


def test_bytes_are_paid_for_with_time() -> None:
    clock = Clock()
    pace = Pace(100.0, clock.look, clock.time, clock.sleep)

    for _ in range(20):
        pace.take(50)

    assert round(clock.now - 1000.0, 6) == 10.0


def test_a_pause_earns_no_credit() -> None:
    clock = Clock()
    pace = Pace(100.0, clock.look, clock.time, clock.sleep)
    pace.take(100)

    clock.now += 60
    pace.take(100)

    assert round(clock.now - 1000.0, 6) == 62.0


def test_a_long_wait_is_divided_so_that_the_caller_stays_alive() -> None:
    clock = Clock()

    Pace(100.0, clock.look, clock.time, clock.sleep).take(1000)

    assert clock.looks >= 10


def test_without_a_rate_nobody_waits() -> None:
    clock = Clock()

    Pace(None, clock.look, clock.time, clock.sleep).take(2**40)

    assert clock.now == 1000.0
