"""Rows of a copy that was resumed: every key once, whichever image, for the changes since make it right."""

from __future__ import annotations

from typing import cast

import pyarrow as pa
from pyspark.sql import SparkSession

from apply_spark.copies import Pace, upserts
from schemas.identifiers import TableName
from tests.support.builders import a_column, a_table

NO_SPARK = cast("SparkSession", None)
"""Keys of which equal values have equal bytes need none."""
TABLE = a_table(a_column("id", key=True), a_column("n"), name=TableName("public", "t"))


def test_a_key_that_was_read_several_times_is_written_once() -> None:
    rows = [{"id": 1, "n": 10}, {"id": 2, "n": 20}, {"id": 1, "n": 11}, {"id": 3, "n": 30}, {"id": 1, "n": 10}]

    changes = upserts(NO_SPARK, pa.table({"row": rows}), TABLE)

    written = changes.rows.arrow().to_pylist()
    assert sorted(each["key"]["id"] for each in written) == [1, 2, 3]
    assert all(each["row"] in rows and each["row"]["id"] == each["key"]["id"] for each in written)
    assert not any(each["deleted"] for each in written)
    assert (changes.truncate, changes.partial) == (False, False)


def test_a_piece_becomes_what_takes_a_second_and_follows_by_steps() -> None:
    pace = Pace()
    sizes = [pace.rows]
    for _ in range(6):
        pace.took(pace.rows, seconds=pace.rows / 130_000)  # a warm apply
        sizes.append(pace.rows)
    assert sizes == [25_000, 50_000, 100_000, 130_000, 130_000, 130_000, 130_000]

    pace.took(130_000, seconds=60)
    assert pace.rows == 65_000


def test_a_small_piece_says_nothing_of_larger_ones_unless_it_was_slow() -> None:
    pace = Pace()
    pace.took(10, seconds=0.01)
    assert pace.rows == 25_000
    pace.took(5_000, seconds=2)
    assert pace.rows == 2_500


def test_pieces_do_not_shrink_where_it_is_the_commit_that_takes_time() -> None:
    pace = Pace()
    for _ in range(12):
        pace.took(pace.rows, seconds=2.5 + pace.rows / 50_000)  # as Delta
    assert 100_000 <= pace.rows <= 150_000, "half of the time goes into rows"


def test_pieces_shrink_where_rows_are_what_takes_time() -> None:
    pace = Pace()
    for _ in range(12):
        pace.took(pace.rows, seconds=pace.rows / 1_500)
    assert 1_400 <= pace.rows <= 1_600
