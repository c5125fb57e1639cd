from __future__ import annotations

import json
from datetime import timedelta

import pytest

from console.output import as_json, human_bytes, human_duration, table


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (None, "-"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 kB"),
        (1536, "1.5 kB"),
        (1_048_576, "1.0 MB"),
        (20 * 1024**3, "20 GB"),
        (5 * 1024**6, "5120 PB"),
    ],
)
def test_bytes_are_told_with_at_most_three_digits_and_a_unit(count: int | None, words: str) -> None:
    assert human_bytes(count) == words


@pytest.mark.parametrize(
    ("duration", "words"),
    [
        (None, "-"),
        (0.0, "0 s"),
        (0.25, "250 ms"),
        (4.2, "4.2 s"),
        (59.94, "59.9 s"),
        (timedelta(minutes=3, seconds=20), "3 m 20 s"),
        (timedelta(hours=5, minutes=10), "5 h 10 m"),
        (timedelta(days=2, hours=4), "2 d 4 h"),
    ],
)
def test_durations_are_told_in_the_two_largest_units(duration: timedelta | float | None, words: str) -> None:
    assert human_duration(duration) == words


def test_json_can_be_read_back() -> None:
    assert json.loads(as_json({"lag_bytes": 3, "phase": "Ready"})) == {"lag_bytes": 3, "phase": "Ready"}


def test_numbers_stand_to_the_right() -> None:
    made = table("name", "rows", right=["rows"])

    assert [column.justify for column in made.columns] == ["left", "right"]
