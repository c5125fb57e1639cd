"""Each mode against a model that goes change by change: whatever happened, in however many intervals."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from apply_spark.config import Mode
from apply_spark.destinations.memory import MemoryDestination
from schemas.identifiers import DestinationName
from tests.support.fold_model import KEYED, Chance, Change, Values
from tests.support.mode_model import MODELS, Kept, comparable

HISTORIES = 100
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
