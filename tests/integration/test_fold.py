"""The fold against a model of the source: whatever happened in an interval, the mirror ends as the source did.

A Spark job costs more than a thousand histories, so many run in one fold, each with a case number in its keys.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession

from tests.support.fold_model import (
    BIG,
    KEYED,
    KEYLESS,
    Chance,
    Change,
    Key,
    SourceBag,
    SourceTable,
    bag_after,
    folded,
    mirror_after,
    missing,
    row_of,
)

HISTORIES = 300

few_seeds = settings(max_examples=2, phases=[Phase.explicit, Phase.reuse, Phase.generate])
"""A seed stands for hundreds of histories; the shortest one that fails is shown, so nothing need be shrunk."""
seeds = st.integers(0, 2**32 - 1)


class Keys(NamedTuple):
    """A hard history begins with rows at a, b and c."""

    a: Key
    b: Key
    c: Key
    d: Key
    e: Key


def _chain_of_moves(table: SourceTable, at: Keys) -> None:
    table.move(at.a, at.d)
    table.commit()
    table.move(at.d, at.e, amount=5)
    table.move(at.e, at.a)


def _swap(table: SourceTable, at: Keys) -> None:
    table.move(at.a, at.d)
    table.move(at.b, at.a)
    table.move(at.d, at.b)


def _rotation(table: SourceTable, at: Keys) -> None:
    table.move(at.c, at.d)
    table.move(at.b, at.c, note="short")
    table.move(at.a, at.b)
    table.move(at.d, at.a)


def _move_onto_a_key_deleted_before(table: SourceTable, at: Keys) -> None:
    table.delete(at.b)
    table.move(at.a, at.b)


def _move_onto_a_key_that_moved_on(table: SourceTable, at: Keys) -> None:
    table.move(at.b, at.d)
    table.move(at.a, at.b)
    table.update(at.b, amount=1)


def _away_and_back(table: SourceTable, at: Keys) -> None:
    table.move(at.a, at.d)
    table.update(at.d, note="new")
    table.commit()
    table.move(at.d, at.a)


def _away_and_back_twice_while_another_took_the_place(table: SourceTable, at: Keys) -> None:
    table.move(at.a, at.d)
    table.move(at.b, at.a)
    table.move(at.a, at.b)
    table.move(at.d, at.a)
    table.move(at.a, at.d)
    table.move(at.d, at.a)


def _partial_update_and_then_a_delete(table: SourceTable, at: Keys) -> None:
    table.update(at.a, amount=1)
    table.delete(at.a)


def _delete_then_insert_then_partial_update(table: SourceTable, at: Keys) -> None:
    table.delete(at.a)
    table.insert(row_of(at.a, f"{BIG}second", f"{BIG}second", 2))
    table.update(at.a, amount=3)


def _insert_then_move_then_partial_update(table: SourceTable, at: Keys) -> None:
    table.insert(row_of(at.d, f"{BIG}fresh", f"{BIG}fresh", 2))
    table.move(at.d, at.e)
    table.update(at.e, amount=3)


def _unsent_column_after_it_was_set_to_null(table: SourceTable, at: Keys) -> None:
    table.update(at.a, note=None)
    table.move(at.a, at.d)
    table.update(at.d, amount=4)


def _unsent_columns_that_were_sent_in_different_lives(table: SourceTable, at: Keys) -> None:
    table.update(at.a, note=f"{BIG}from a")
    table.move(at.a, at.d, body=f"{BIG}from d")
    table.move(at.d, at.e)


def _move_then_delete_then_reuse_of_both_keys(table: SourceTable, at: Keys) -> None:
    table.move(at.a, at.d)
    table.delete(at.d)
    table.move(at.b, at.d)
    table.move(at.c, at.a)


HARD: list[Callable[[SourceTable, Keys], None]] = [
    _chain_of_moves,
    _swap,
    _rotation,
    _move_onto_a_key_deleted_before,
    _move_onto_a_key_that_moved_on,
    _away_and_back,
    _away_and_back_twice_while_another_took_the_place,
    _partial_update_and_then_a_delete,
    _delete_then_insert_then_partial_update,
    _insert_then_move_then_partial_update,
    _unsent_column_after_it_was_set_to_null,
    _unsent_columns_that_were_sent_in_different_lives,
    _move_then_delete_then_reuse_of_both_keys,
]


@pytest.fixture(scope="module")
def after_hard_histories(spark: SparkSession) -> list[tuple[SourceTable, list[Row]]]:
    """Every hard history, each on a table of three rows, and what the fold of all of them left of it."""
    sources = []
    for case, history in enumerate(HARD):
        at = Keys(*((case, number, 0) for number in range(5)))
        began = {key: row_of(key, f"{BIG}note {key}", f"{BIG}body {key}", 0) for key in at[:3]}
        source = SourceTable(began, case)
        history(source, at)
        sources.append(source)
    _, events = folded(spark, _changes(sources), KEYED)
    return [(source, by_case) for source, by_case in zip(sources, _by_case(events, len(sources)), strict=True)]


@pytest.mark.parametrize("case", range(len(HARD)), ids=lambda case: HARD[case].__name__.strip("_"))
def test_a_hard_history_leaves_the_mirror_as_the_source(
    after_hard_histories: list[tuple[SourceTable, list[Row]]], case: int
) -> None:
    source, events = after_hard_histories[case]

    assert mirror_after(source.began, events) == source.rows


@few_seeds
@given(seed=seeds)
def test_any_history_leaves_the_mirror_as_the_source(spark: SparkSession, seed: int) -> None:
    chance = Chance.of(seed)
    sources = [chance.history(case, steps=chance.random.randrange(1, 14)) for case in range(HISTORIES)]

    truncate, events = folded(spark, _shuffled(_changes(sources), chance, again=0.1), KEYED)

    assert not truncate
    assert _each_key_once(events)
    _compare(sources, events)


@few_seeds
@given(seed=seeds)
def test_rows_that_were_all_sent_whole_take_the_short_way_to_the_same_end(spark: SparkSession, seed: int) -> None:
    chance = Chance.of(seed, big=0.0)
    sources = [chance.history(case, steps=chance.random.randrange(1, 14)) for case in range(HISTORIES)]

    _, events = folded(spark, _shuffled(_changes(sources), chance, again=0.1), KEYED)

    assert not any(missing(event) for event in events)
    assert _each_key_once(events)
    _compare(sources, events)


@few_seeds
@given(seed=seeds)
def test_rows_that_never_move_are_filled_from_their_own_past(spark: SparkSession, seed: int) -> None:
    chance = Chance.of(seed, moves=0)
    sources = [chance.history(case, steps=chance.random.randrange(1, 14)) for case in range(HISTORIES)]

    _, events = folded(spark, _shuffled(_changes(sources), chance, again=0.1), KEYED)

    assert all(event.base == event.key for event in events if missing(event))
    assert _each_key_once(events)
    _compare(sources, events)


@few_seeds
@given(seed=seeds)
def test_a_truncate_takes_all_that_was_before_it_and_nothing_after(spark: SparkSession, seed: int) -> None:
    chance = Chance.of(seed, keys=40, truncates=0.02)
    source = chance.history(0, steps=100)
    source.truncate()
    chance.truncates = 0.0
    chance.go_on(source, steps=100)

    truncate, events = folded(spark, _shuffled(source.changes, chance, again=0.1), KEYED)

    assert truncate
    assert _each_key_once(events)
    assert mirror_after({}, events) == source.rows


@few_seeds
@given(seed=seeds)
def test_rows_without_a_key_come_and_go_as_often_as_at_the_source(spark: SparkSession, seed: int) -> None:
    chance = Chance.of(seed)
    sources = [chance.bag_history(case, steps=chance.random.randrange(1, 14)) for case in range(HISTORIES)]

    _, events = folded(spark, _shuffled(_changes(sources), chance), KEYLESS)

    assert len(events) == len({event.row for event in events})
    for source, mine in zip(sources, _by_case(events, HISTORIES), strict=True):
        assert bag_after(source.began, mine) == +source.rows, source


def test_rows_without_a_key_that_only_come_keep_their_number(spark: SparkSession) -> None:
    source = SourceBag([])
    for _ in range(3):
        source.change(None, (0, None, None))
    source.change(None, (0, "x", 1))

    _, events = folded(spark, source.changes, KEYLESS)

    assert bag_after([], events) == Counter({(0, None, None): 3, (0, "x", 1): 1})


def test_a_minus_zero_keeps_its_sign_and_every_nan_is_the_same(spark: SparkSession) -> None:
    source = SourceBag([])
    source.change(None, (0, None, -0.0))
    source.change(None, (0, None, math.nan))
    source.change((0, None, math.nan), None)

    _, (event,) = folded(spark, source.changes, KEYLESS)

    assert (str(event.row.amount), event.net) == ("-0.0", 1)


def test_a_truncate_of_rows_without_a_key_leaves_what_came_after_it(spark: SparkSession) -> None:
    source = SourceBag([(0, "old", 1), (0, "old", 1)])
    source.change((0, "old", 1), (0, "new", 1))
    source.truncate()
    source.change(None, (0, "new", 1))
    source.change(None, (0, "new", 1))
    source.change((0, "new", 1), (0, "newest", None))

    truncate, events = folded(spark, source.changes, KEYLESS)

    assert truncate
    assert bag_after([], events) == source.rows


def test_a_partial_row_that_nothing_explains_has_missing_columns_and_no_base(spark: SparkSession) -> None:
    here, there = (0, 1, 0), (0, 2, 0)
    lost = [
        Change(100, 0, 7, "c", None, row_of(here, None, "sent", 5), ["note"]),
        Change(100, 1, 7, "d", row_of(here, None, None, 0), None, []),
        Change(100, 2, 7, "c", row_of(here, None, None, 0), row_of(there, None, "sent", 5), ["note"]),
        Change(100, 3, 7, "c", None, row_of(here, None, "sent", 5), ["note"]),
    ]

    _, events = folded(spark, lost, KEYED)

    assert {tuple(event.key): (event.missing, event.base) for event in events} == {
        here: (["note"], None),
        there: (["note"], None),
    }


def _changes(sources: list[Any]) -> list[Change]:
    return [change for source in sources for change in source.changes]


def _shuffled(changes: list[Change], chance: Chance, again: float = 0.0) -> list[Change]:
    """In any order, and some of them twice."""
    twice = changes + chance.random.sample(changes, int(len(changes) * again))
    return chance.random.sample(twice, len(twice))


def _by_case(events: list[Row], cases: int) -> list[list[Row]]:
    found: dict[int, list[Row]] = defaultdict(list)
    for event in events:
        found[(event.key if "key" in event else event.row).case].append(event)
    return [found[case] for case in range(cases)]


def _each_key_once(events: list[Row]) -> bool:
    return len({tuple(event.key) for event in events}) == len(events)


def _compare(sources: list[SourceTable], events: list[Row]) -> None:
    """Every mirror with its source; of those that differ, the one with the shortest history is shown."""
    by_case = _by_case(events, len(sources))
    for source in sorted(sources, key=lambda source: len(source.changes)):
        assert mirror_after(source.began, by_case[source.case]) == source.rows, (source.began, source.changes)
