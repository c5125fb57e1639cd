"""Medians, percentiles, ratios of one round, and the check that fails when a ratio has become worse."""

from __future__ import annotations

import pytest

from benchmarks.measurement import Measurement
from benchmarks.ratios import Spread, best, compare, comparison_table, percentile, ratios


def at(*rates: float) -> list[Measurement]:
    return [Measurement(count=int(rate), seconds=1.0) for rate in rates]


def test_a_spread_has_the_median_and_both_ends() -> None:
    spread = Spread((3.0, 1.0, 2.0))

    assert (spread.low, spread.median, spread.high) == (1.0, 2.0, 3.0)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.95, 95), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(share: float, expected: float) -> None:
    assert percentile(list(range(100, 0, -1)), share) == expected


def test_a_percentile_of_few_values_is_one_of_them() -> None:
    assert percentile([7.0], 0.5) == 7.0
    assert percentile([1.0, 2.0, 3.0], 0.5) == 2.0
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_a_drain_is_compared_in_each_round_with_the_kind_of_reader_that_is_best_by_its_median() -> None:
    cases = {
        "reader/tcp/blocking/backlog": at(100, 80, 90),
        "reader/tcp/low_water/backlog": at(50, 200, 70),
        "reader/unix/blocking/backlog": at(1000, 1000, 1000),
        "drain/tcp/backlog": at(90, 60, 81),
    }

    assert ratios(cases)["drain/tcp/backlog : best bare reader"] == pytest.approx([0.9, 0.75, 0.9])


def test_a_copy_is_compared_with_as_many_connections() -> None:
    cases = {
        "limit/copy_1": at(500),
        "limit/copy_workers": at(800),
        "copy/markers": at(400),
        "copy/flow": at(600),
    }

    found = ratios(cases)

    assert found["copy/markers : COPY discarded, as many connections"] == [0.5]
    assert found["copy/flow : COPY discarded, as many connections"] == [0.75]


def test_what_was_not_measured_has_no_ratio() -> None:
    assert ratios({}) == {}
    assert ratios({"drain/tcp/backlog": at(90)}) == {}


def test_the_best_repetition_stands_for_a_quick_run() -> None:
    assert best({"a": [0.4, 0.6, 0.5]}) == {"a": 0.6}


@pytest.mark.parametrize(("now", "worse"), [(0.80, False), (0.79, True), (1.5, False)])
def test_a_ratio_is_worse_when_it_lost_more_than_a_fifth(now: float, worse: bool) -> None:  # noqa: FBT001
    (comparison,) = compare({"a": 1.0}, {"a": now})

    assert comparison.worse is worse
    assert ("WORSE" in comparison_table([comparison])) is worse


def test_no_more_than_a_bare_reader_has_is_asked_for() -> None:
    name = "drain/unix/backlog : best bare reader"

    (comparison,) = compare({name: 1.5}, {name: 0.85})

    assert not comparison.worse


def test_a_ratio_that_is_no_longer_measured_is_worse() -> None:
    (comparison,) = compare({"a": 1.0}, {"b": 9.0})

    assert comparison.worse
    assert "missing" in comparison_table([comparison])


def test_a_new_ratio_is_not_compared() -> None:
    assert compare({}, {"a": 0.1}) == []
