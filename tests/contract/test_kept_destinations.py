"""What destinations hold in modes other than `mirror`, on the real engines: the changes of a table with truncates."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from apply_spark.config import Mode
from apply_spark.destination import APPENDED_MODES
from apply_spark.modes import kept_schema
from tests.contract.destination_places import FURTHER, make_place
from tests.support.fold_model import KEYED, Chance
from tests.support.mode_model import MODELS, Kept, comparable

FURTHER_CASES = [
    *[("postgres", mode) for mode in MODELS],
    ("ducklake", Mode.SOFT_DELETE),
    ("ducklake", Mode.HISTORY),
    ("delta", Mode.HISTORY),
    *[("clickhouse", mode) for mode in MODELS],
    ("iceberg", Mode.SOFT_DELETE),
]
CASES = [*[("duckdb", mode) for mode in MODELS], *[pytest.param(*case, marks=FURTHER) for case in FURTHER_CASES]]
SEED = 5


@pytest.mark.parametrize(("kind", "mode"), CASES)
def test_what_is_kept_is_what_happened(
    kind: str, mode: Mode, spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    place = make_place(kind, request)
    destination = place.opened()
    assert mode in getattr(destination, "modes", APPENDED_MODES)
    history = Chance.of(SEED, keys=8, truncates=0.1).history(0, steps=40)
    assert sum(change.op == "t" for change in history.changes) > 1
    cut = max(change.commit_lsn for change in history.changes) // 200_000 * 100_000
    began = list(history.began.values())

    kept = Kept(spark, destination, mode, began)
    kept.take(change for change in history.changes if change.commit_lsn < cut)
    kept.take(change for change in history.changes if change.commit_lsn >= cut)
    kept.end()

    assert comparable(place.rows(kept_schema(mode, KEYED))) == MODELS[mode](began, history.changes)
