"""Folded changes: rows come, change, move and go, with a key and without one."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from apply_spark.config import Mode
from apply_spark.destination import APPENDED_MODES, Destination, Ending
from destination_contract.batches import a_batch, bag_changes, changes, fill, gone, upsert
from destination_contract.place import Place, in_order
from destination_contract.tables import EVENTS, FLOAT8, ITEMS, ORDERS, a_column, a_table
from schemas.identifiers import TableName


class ChangesContract:
    """What a batch does to the rows."""

    def test_rows_come_change_and_go(self, place: Place, destination: Destination, spark: SparkSession) -> None:
        fill(destination, spark, ORDERS, (1, "a", 1), (2, "b", 2), (3, "c", 3))

        destination.write_events(
            a_batch(changes(spark, ORDERS, upsert(2, None, 20), gone(3), upsert(4, "d", 4), gone(99)))
        )

        assert in_order(place.rows(ORDERS)) == in_order([(1, "a", 1), (2, None, 20), (4, "d", 4)])

    def test_a_truncate_is_done_before_the_rows_and_alone_leaves_an_empty_table(
        self, place: Place, destination: Destination, spark: SparkSession
    ) -> None:
        fill(destination, spark, ORDERS, (1, "a", 1), (2, "b", 2))
        fill(destination, spark, EVENTS, ("x", 1), others=10)

        destination.write_events(
            a_batch(
                changes(spark, ORDERS, upsert(2, "new", 2), gone(1), truncate=True),
                bag_changes(spark, EVENTS, (("y", 1), 2), truncate=True),
            )
        )

        assert place.rows(ORDERS) == [(2, "new", 2)]
        assert place.rows(EVENTS) == [("y", 1), ("y", 1)]
        destination.write_events(a_batch(changes(spark, ORDERS, truncate=True), lsn=101))
        assert place.rows(ORDERS) == []

    def test_an_ending_is_done_before_the_rows(
        self, place: Place, destination: Destination, spark: SparkSession
    ) -> None:
        if Mode.HISTORY not in getattr(destination, "modes", APPENDED_MODES):
            pytest.skip("it has no mode that needs it")
        fill(destination, spark, ORDERS, (1, "a", 1), (2, "b", 2), (3, "a", 3), (4, "a", 4))
        _, note, amount = ORDERS.columns
        ending = Ending(replace(note, missing="a"), (replace(amount, missing="9"),))

        batch = changes(spark, ORDERS, upsert(3, "a", 30), upsert(5, "a", None, missing=["amount"], base=(1,)), gone(4))
        destination.write_events(a_batch(replace(batch, ending=ending)))

        assert in_order(place.rows(ORDERS)) == in_order([(1, "a", 9), (2, "b", 2), (3, "a", 30), (5, "a", 9)])

    def test_columns_that_were_not_sent_are_kept(
        self, place: Place, destination: Destination, spark: SparkSession
    ) -> None:
        fill(destination, spark, ORDERS, (1, "a", 1), (2, None, 2), (3, "c", 3))

        destination.write_events(
            a_batch(
                changes(
                    spark,
                    ORDERS,
                    upsert(1, None, 10, missing=["note"], base=(1,)),
                    upsert(2, None, 20, missing=["note"], base=(2,)),
                    upsert(3, None, None, base=(3,)),
                )
            )
        )

        assert in_order(place.rows(ORDERS)) == in_order([(1, "a", 10), (2, None, 20), (3, None, None)])

    def test_rows_that_moved_take_what_was_not_sent_from_where_they_were_before_the_batch(
        self, place: Place, destination: Destination, spark: SparkSession
    ) -> None:
        fill(destination, spark, ORDERS, (1, "one", 1), (2, "two", 2), (3, "three", 3))
        swap = [upsert(1, None, 1, missing=["note"], base=(2,)), upsert(2, None, 2, missing=["note"], base=(1,))]
        away = [gone(3), upsert(4, None, None, missing=["note", "amount"], base=(3,))]

        destination.write_events(a_batch(changes(spark, ORDERS, *swap, *away)))

        assert in_order(place.rows(ORDERS)) == in_order([(1, "two", 1), (2, "one", 2), (4, "three", 3)])

    def test_copies_of_a_row_without_a_key_come_and_go_by_number(
        self, place: Place, destination: Destination, spark: SparkSession
    ) -> None:
        fill(destination, spark, EVENTS, ("x", 1), ("x", 1), ("x", 1), (None, None), (None, None), ("y", 1), ("", 1))

        destination.write_events(
            a_batch(
                bag_changes(
                    spark,
                    EVENTS,
                    (("x", 1), -2),
                    ((None, None), -1),
                    (("y", 1), 1),
                    ((None, 5), 3),
                    (("", 1), -1),
                    (("once", 1), 1),
                    (("once", 1), 1),
                )
            )
        )

        assert in_order(place.rows(EVENTS)) == in_order(
            [("x", 1), (None, None), ("y", 1), ("y", 1), *[(None, 5)] * 3, ("once", 1), ("once", 1)]
        )

    def test_a_row_without_a_key_is_found_by_equality_also_where_it_holds_nan_or_minus_zero(
        self, place: Place, destination: Destination, spark: SparkSession
    ) -> None:
        floats = a_table(a_column("x", FLOAT8), name=TableName("public", "floats"))
        fill(destination, spark, floats, (-0.0,), (0.0,), (-0.0,), (math.nan,), (math.nan,))

        destination.write_events(a_batch(bag_changes(spark, floats, ((0.0,), -2), ((math.nan,), -2))))

        assert place.rows(floats) == [(0.0,)]

    def test_each_part_of_a_key_counts(self, place: Place, destination: Destination, spark: SparkSession) -> None:
        fill(destination, spark, ITEMS, ("a", 1, "x"), ("b", 1, "y"), ("c", 2, "x"))

        destination.write_events(
            a_batch(
                changes(
                    spark,
                    ITEMS,
                    upsert("changed", 1, "y"),
                    gone(2, "x"),
                    upsert(None, 2, "y", missing=["note"], base=(1, "x")),
                )
            )
        )

        assert in_order(place.rows(ITEMS)) == in_order([("a", 1, "x"), ("changed", 1, "y"), ("a", 2, "y")])
