"""Rows that were sent whole, marked and logged in this process, against the models; tests/integration has the rest."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from apply_spark.config import Mode
from apply_spark.destinations.memory import MemoryDestination
from schemas.identifiers import DestinationName
from tests.support.fold_model import KEYED, Chance
from tests.support.mode_model import MODELS, Kept, comparable

NO_SPARK = cast("SparkSession", None)


@pytest.mark.parametrize("mode", MODELS)
@settings(max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), parts=st.integers(1, 3))
def test_what_is_kept_is_what_happened(mode: Mode, seed: int, parts: int) -> None:
    history = Chance.of(seed, keys=6, big=0.0, truncates=0.1).history(0, steps=25)
    began = list(history.began.values())
    memory = MemoryDestination(DestinationName("kept"), {})
    kept = Kept(NO_SPARK, memory, mode, began)

    lsns = sorted({change.commit_lsn for change in history.changes})
    for part in range(parts):
        mine = lsns[part * len(lsns) // parts : (part + 1) * len(lsns) // parts]
        kept.take(change for change in history.changes if change.commit_lsn in mine)

    assert comparable(memory.rows(KEYED.name)) == MODELS[mode](began, history.changes)
