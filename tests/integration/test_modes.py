"""Each mode against a model that goes change by change: whatever happened, in however many intervals."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from apply_spark.config import Mode
from apply_spark.destinations.memory import MemoryDestination
from apply_spark.modes import OPEN
from schemas.identifiers import DestinationName
from tests.support.fold_model import KEYED, Chance, Change, Values
from tests.support.mode_model import COPIED_AT, MODELS, Kept, comparable

HISTORIES = 60
one_seed = settings(max_examples=1, phases=[Phase.explicit, Phase.reuse, Phase.generate])
seeds = st.integers(0, 2**32 - 1)


def assert_kept(spark: SparkSession, mode: Mode, began: list[Values], intervals: list[list[Change]]) -> None:
    memory = MemoryDestination(DestinationName("kept"), {})
    kept = Kept(spark, memory, mode, began)
    passed: list[Change] = []
    for interval in intervals:
        kept.take(interval, in_spark=bool(passed))
        passed += interval

        assert comparable(memory.rows(KEYED.name)) == MODELS[mode](began, passed)


@pytest.mark.parametrize("mode", MODELS)
@one_seed
@given(seeds)
def test_what_is_kept_is_what_happened(spark: SparkSession, mode: Mode, seed: int) -> None:
    chance = Chance.of(seed)
    histories = [chance.history(case, steps=12) for case in range(HISTORIES)]
    changes = sorted((change for history in histories for change in history.changes), key=lambda each: each[:2])
    began = [row for history in histories for row in history.began.values()]

    half = 4 * 100_000
    intervals = [[c for c in changes if c.commit_lsn < half], [c for c in changes if c.commit_lsn >= half]]
    assert_kept(spark, mode, began, intervals)


@pytest.mark.parametrize("mode", MODELS)
@one_seed
@given(seeds)
def test_a_truncate_ends_rows_and_takes_none_away(spark: SparkSession, mode: Mode, seed: int) -> None:
    chance = Chance.of(seed, keys=30, truncates=0.08)
    history = chance.history(0, steps=120)
    cut = max(change.commit_lsn for change in history.changes) // 200_000 * 100_000

    intervals = [
        [c for c in history.changes if c.commit_lsn < cut],
        [c for c in history.changes if c.commit_lsn >= cut],
    ]
    assert_kept(spark, mode, list(history.began.values()), intervals)


@pytest.mark.parametrize(
    ("mode", "own"), [(Mode.SOFT_DELETE, (False, COPIED_AT, None)), (Mode.HISTORY, (None, None, COPIED_AT, OPEN))]
)
def test_a_copy_that_was_resumed_is_a_mirror_until_it_is_whole(
    spark: SparkSession, mode: Mode, own: tuple[object, ...]
) -> None:
    chance = Chance.of(3, keys=12)
    history = chance.history(0, steps=30)
    passed, whole = len(history.changes), list(history.rows.values())
    memory = MemoryDestination(DestinationName("kept"), {})
    kept = Kept(spark, memory, mode, history.began.values())

    kept.take(history.changes, of_a_resumed_copy=True)

    assert comparable(memory.rows(KEYED.name)) == comparable((*own, *row) for row in whole)

    history.commit()
    chance.go_on(history, 10)
    kept.take(history.changes[passed:])
    assert comparable(memory.rows(KEYED.name)) == MODELS[mode](whole, history.changes[passed:])


@pytest.mark.parametrize("mode", MODELS)
def test_rows_that_a_resumed_copy_brings_again_are_copied_rows(spark: SparkSession, mode: Mode) -> None:
    began = list(Chance.of(4, keys=12).history(0, steps=0).began.values())
    memory = MemoryDestination(DestinationName("kept"), {})

    Kept(spark, memory, mode, began).copy(began[1:])

    again = began[1:] if mode is Mode.LOG else []
    assert comparable(memory.rows(KEYED.name)) == MODELS[mode]([*began, *again], [])
