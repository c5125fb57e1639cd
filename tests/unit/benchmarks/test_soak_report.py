"""What counts as growth of a soak, and which bounds hold."""

from __future__ import annotations

from pathlib import Path

from benchmarks.soak_report import BOUNDS, Soak

MEMORY = "capture, resident bytes"
MOST, _ = BOUNDS[MEMORY]


def a_soak(*memory: int) -> Soak:
    machine = {"cpu": "one", "cores": 2}
    return Soak("abc", 0.0, machine, 100, [10.0 * each for each in range(len(memory))], {MEMORY: list(memory)})


def test_what_grows_while_it_warms_up_does_not_count() -> None:
    soak = a_soak(*range(0, 10 * MOST, MOST), *[10 * MOST] * 20)

    assert soak.growth(MEMORY) == 0
    assert soak.broken() == []


def test_what_goes_on_growing_breaks_its_bound() -> None:
    soak = a_soak(*range(0, 30 * MOST, MOST))

    assert soak.growth(MEMORY) > MOST
    assert soak.broken() == [MEMORY]
    assert "**broken**" in soak.table()


def test_one_look_that_is_far_off_is_no_growth() -> None:
    soak = a_soak(*[MOST] * 29, 100 * MOST)

    assert soak.broken() == []


def test_a_soak_is_read_as_it_was_saved(tmp_path: Path) -> None:
    soak = a_soak(1, 2, 3)

    soak.save(tmp_path / "soak.json")

    assert Soak.load(tmp_path / "soak.json") == soak
