"""A destination is opened, and filled by copies: whole ones, and such as were interrupted and resumed."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from apply_spark.copies import upserts
from apply_spark.destination import Batch, Destination
from apply_spark.errors import DestinationInUse
from destination_contract.batches import a_progress, copied, fill
from destination_contract.place import Place, in_order
from destination_contract.tables import EVENTS, FLOAT8, INT8, ITEMS, ORDERS, a_column, a_table
from schemas.phases import DataSync
from schemas.table import TableSchema

MEASURES = a_table(a_column("at", FLOAT8, key=True), a_column("note"), a_column("amount", INT8))
"""Equal keys may differ in bytes here, so that Spark folds them."""


class CopiesContract:
    """How tables come to be there."""

    def test_a_new_destination_has_no_progress(self, place: Place) -> None:
        destination = place.opened()

        stored = destination.startup()

        assert stored is None
        destination.shutdown()

    def test_shutting_down_what_was_never_started_does_nothing(self, place: Place) -> None:
        place.opened().shutdown()

    def test_starting_what_is_started_is_refused(self, destination: Destination) -> None:
        with pytest.raises(DestinationInUse) as caught:
            destination.startup()

        assert caught.value.solution

    def test_a_copy_arrives_in_pieces(self, place: Place, destination: Destination, spark: SparkSession) -> None:
        pieces: list[list[tuple[Any, ...]]] = [[(1, "a", 1), (2, None, None)], [(3, "", 3)], []]

        destination.drop_table_for_copy(ORDERS, a_progress(1, ORDERS, phase=DataSync()))
        for number, piece in enumerate(pieces):
            destination.write_table_rows(ORDERS, copied(spark, ORDERS, piece), a_progress(2 + number, ORDERS))

        assert in_order(place.rows(ORDERS)) == in_order([(1, "a", 1), (2, None, None), (3, "", 3)])

    def test_a_new_copy_empties_the_table_and_gives_it_its_new_shape(
        self, place: Place, destination: Destination, spark: SparkSession
    ) -> None:
        fill(destination, spark, ORDERS, (1, "a", 1))
        other = a_table(a_column("note"), a_column("id", INT8, key=True))

        fill(destination, spark, other, ("b", 1))

        assert place.rows(other) == [("b", 1)]

    def test_copied_rows_of_a_table_without_a_key_may_be_alike(
        self, place: Place, destination: Destination, spark: SparkSession
    ) -> None:
        fill(destination, spark, EVENTS, (None, 1), (None, 1), ("x", 2))

        assert in_order(place.rows(EVENTS)) == in_order([(None, 1), (None, 1), ("x", 2)])

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
        self,
        place: Place,
        destination: Destination,
        spark: SparkSession,
        schema: TableSchema,
        first: tuple[Any, ...],
        second: tuple[Any, ...],
        third: tuple[Any, ...],
    ) -> None:
        destination.drop_table_for_copy(schema, a_progress(1, schema, phase=DataSync()))
        for number, piece in enumerate([[first, second, first], [second, second, third, third]]):
            changes = upserts(spark, copied(spark, schema, piece).arrow(), schema)
            destination.write_events(Batch((changes,), a_progress(2 + number, schema, phase=DataSync())))

        assert sorted(place.rows(schema)) == [first, second, third]
