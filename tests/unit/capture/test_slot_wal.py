from __future__ import annotations

import math

import pytest
from prometheus_client import REGISTRY

from capture.slot_wal import Growth, SlotWal, SlotWalWatch, seconds_to_limit
from schemas.identifiers import DestinationName, SlotName
from schemas.lsn import Lsn

LAKE, SCREEN = DestinationName("lake"), DestinationName("screen")


@pytest.mark.parametrize(
    ("left", "growth", "seconds"),
    [(1000, 10.0, 100.0), (1000, 0.0, None), (1000, -5.0, None), (1000, None, None), (None, 10.0, None)],
)
def test_the_limit_is_reached_when_what_is_left_is_used_up(
    left: int | None, growth: float | None, seconds: float | None
) -> None:
    assert seconds_to_limit(left, growth) == seconds


@pytest.mark.parametrize("left", [0, -16_777_216])
def test_a_slot_past_its_limit_has_no_time_left_whatever_the_growth(left: int) -> None:
    assert seconds_to_limit(left, None) == seconds_to_limit(left, -1.0) == 0.0


def test_growth_is_measured_over_the_last_five_minutes() -> None:
    growth = Growth()

    assert growth.add(0.0, 10_000) is None
    assert growth.add(10.0, 10_500) == 50.0
    assert growth.add(20.0, 9_000) == -50.0
    assert growth.add(310.0, 9_000) == pytest.approx(-1500 / 300)


def gauge(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"penstock_capture_{name}", labels)


def test_the_gauges_tell_how_much_how_long_and_who() -> None:
    watch = SlotWalWatch("", SlotName("s"), [LAKE, SCREEN], lambda: [LAKE])

    watch._show(SlotWal(Lsn(5_000), held=3_000, left=1_000, limit=4_000))

    assert watch.end == 5_000
    assert (gauge("slot_wal_bytes"), gauge("slot_wal_limit_bytes"), gauge("slot_wal_left_bytes")) == (3e3, 4e3, 1e3)
    assert gauge("slot_wal_limit_seconds") == math.inf, "one look knows no growth"
    holders = {name: gauge("slot_wal_holder", holder=name) for name in ("lake", "screen", "capture")}
    assert holders == {"lake": 1, "screen": 0, "capture": 0}


def test_without_a_limit_the_gauges_say_never() -> None:
    watch = SlotWalWatch("", SlotName("s"), [LAKE], list)

    watch._show(SlotWal(Lsn(5_000), held=3_000, left=None, limit=None))

    assert gauge("slot_wal_limit_bytes") == gauge("slot_wal_left_bytes") == math.inf
    assert gauge("slot_wal_limit_seconds") == math.inf
    assert gauge("slot_wal_holder", holder="capture") == 1
