"""Rows of a copy that was resumed: every key once, whichever image, for the changes since make it right."""

from __future__ import annotations

from typing import cast

import pyarrow as pa
from pyspark.sql import SparkSession

from apply_spark.copies import upserts
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
