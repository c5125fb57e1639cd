"""A copy that was interrupted and resumed leaves every key once at every place that keeps rows."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from apply_spark.copies import upserts
from apply_spark.destination import Batch
from schemas.phases import DataSync
from schemas.table import TableSchema
from tests.contract.destination_places import ITEMS, ORDERS, PLACES, a_progress, copied, make_place
from tests.support.builders import INT8, a_column, a_table

FLOAT8 = 701
MEASURES = a_table(a_column("at", FLOAT8, key=True), a_column("note"), a_column("amount", INT8))
"""Equal keys may differ in bytes here, so that Spark folds them."""


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize(
    ("schema", "first", "second", "third"),
    [
        (ORDERS, (1, "a", 1), (2, "b", 2), (3, "c", 3)),
        (MEASURES, (1.5, "a", 1), (2.5, "b", 2), (float("inf"), "c", 3)),
        (ITEMS, ("a", 1, "x"), ("a", 1, "y"), ("b", 2, "x")),
    ],
    ids=["integer", "float", "two columns"],
)
def test_keys_that_come_again_in_a_piece_and_in_a_later_one_are_there_once(
    name: str,
    schema: TableSchema,
    first: tuple[Any, ...],
    second: tuple[Any, ...],
    third: tuple[Any, ...],
    request: pytest.FixtureRequest,
    spark: SparkSession,
) -> None:
    place = make_place(name, request)
    destination = place.opened()
    destination.startup()

    destination.drop_table_for_copy(schema, a_progress(1, schema, phase=DataSync()))
    for number, piece in enumerate([[first, second, first], [second, third], [third, third]]):
        changes = upserts(spark, copied(spark, schema, piece).arrow(), schema)
        destination.write_events(Batch((changes,), a_progress(2 + number, schema, phase=DataSync())))

    assert sorted(place.rows(schema)) == [first, second, third]
    destination.shutdown()
