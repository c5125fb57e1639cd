"""Tables that are altered with a batch: rows from before and rows of the batch have the new shape."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from apply_spark.destination import Alteration, Batch, Destination
from apply_spark.errors import TableFailed
from destination_contract.batches import a_progress, bag_changes, changes, fill, gone, upsert
from destination_contract.place import Place, held_at, needs_mirror, printed
from destination_contract.samples import ARRAYS, SAMPLES, a_table_of, from_kafka
from destination_contract.tables import INT8, a_column, a_table
from schemas.evolution import changes as changes_between
from schemas.table import TableSchema

ID = a_column("id", INT8, key=True, number=1)
NOTE, AMOUNT = a_column("note", number=2), a_column("amount", INT8, number=3)
ORDERS = a_table(ID, NOTE, AMOUNT)
MORE = a_column("more", INT8, number=4, missing="7")
EMPTY = a_column("empty", INT8, number=5)
OTHER = a_column("amount", INT8, number=6, missing="8")
SHAPES: list[tuple[TableSchema, list[tuple[object, ...]]]] = [
    (a_table(ID, NOTE, AMOUNT, MORE), [(1, "a", 10, 7), (2, None, 20, 7)]),
    (a_table(ID, NOTE, AMOUNT, MORE, EMPTY), [(1, "a", 10, 7, None), (2, None, 20, 7, None)]),
    (a_table(ID, NOTE, AMOUNT, EMPTY), [(1, "a", 10, None), (2, None, 20, None)]),
    (a_table(ID, replace(NOTE, name="Note"), AMOUNT, EMPTY), [(1, "a", 10, None), (2, None, 20, None)]),
    (
        a_table(ID, replace(NOTE, name="amount"), replace(AMOUNT, name="Note"), EMPTY),  # names are exchanged
        [(1, "a", 10, None), (2, None, 20, None)],
    ),
    (
        a_table(replace(ID, name="number"), replace(AMOUNT, name="Note"), EMPTY, OTHER),  # a name goes to another
        [(1, 10, None, 8), (2, 20, None, 8)],
    ),
    (
        a_table(replace(ID, name="number"), EMPTY, OTHER, a_column("Note", number=7, missing="new")),
        [(1, None, 8, "new"), (2, None, 8, "new")],
    ),
]
"""What `ORDERS` becomes, step by step, and two rows with it."""


def altered(before: TableSchema, after: TableSchema) -> Alteration:
    made = changes_between(before, after)
    assert made is not None
    return Alteration(before, after, tuple(made))


class AlterationsContract:
    """Columns come, go, and change their names."""

    def test_rows_that_are_there_take_on_one_new_shape_after_the_other(
        self, place: Place, destination: Destination, spark: SparkSession
    ) -> None:
        fill(destination, spark, ORDERS, (1, "a", 10), (2, None, 20))

        before = ORDERS
        for number, (after, expected) in enumerate(SHAPES):
            destination.write_events(Batch((), a_progress(100 + number, after), (altered(before, after),)))

            assert sorted(place.rows(after)) == expected
            before = after

    def test_rows_of_the_batch_come_after_the_new_shape_with_what_was_not_sent_under_new_names(
        self, place: Place, destination: Destination, spark: SparkSession
    ) -> None:
        fill(destination, spark, ORDERS, (1, "kept", 10), (2, "b", 20), (3, "c", 30))
        after = a_table(ID, replace(NOTE, name="remark"), MORE)
        rows = changes(
            spark, after, upsert(1, None, 8, missing=["remark"], base=(1,)), gone(2), upsert(4, "d", 9, missing=[])
        )

        destination.write_events(Batch((rows,), a_progress(100, after), (altered(ORDERS, after),)))

        assert sorted(place.rows(after)) == [(1, "kept", 8), (3, "c", 7), (4, "d", 9)]
        again = changes(spark, after, upsert(3, "again", 1))
        destination.write_events(Batch((again,), a_progress(101, after)))
        assert sorted(place.rows(after)) == [(1, "kept", 8), (3, "again", 1), (4, "d", 9)]

    def test_rows_without_a_key_take_on_the_new_shape_and_become_alike(
        self, place: Place, destination: Destination, spark: SparkSession
    ) -> None:
        first, second = a_column("a", number=1), a_column("b", INT8, number=2)
        fill(destination, spark, a_table(first, second), ("x", 1), ("x", 2), ("y", 3))
        after = a_table(replace(first, name="c"), MORE)

        rows = bag_changes(spark, after, (("x", 7), -1), (("z", 0), 2))
        destination.write_events(Batch((rows,), a_progress(100, after), (altered(a_table(first, second), after),)))

        assert sorted(place.rows(after)) == [("x", 7), ("y", 7), ("z", 0), ("z", 0)]

    def test_a_failed_table_leaves_the_shape_as_it_was(
        self, place: Place, destination: Destination, spark: SparkSession
    ) -> None:
        needs_mirror(place)
        fill(destination, spark, ORDERS, (1, "a", 10))
        after = a_table(ID, AMOUNT, MORE)
        lost = changes(spark, after, upsert(9, None, 1, missing=["amount"], base=(9,)))

        with pytest.raises(TableFailed):
            destination.write_events(Batch((lost,), a_progress(100, after), (altered(ORDERS, after),)))

        assert place.rows(ORDERS) == [(1, "a", 10)]

    def test_what_rows_miss_is_held_as_a_copied_value_is_in_every_type(
        self, place: Place, destination: Destination, spark: SparkSession
    ) -> None:
        needs_mirror(place)
        samples = (*held_at(place, SAMPLES), *held_at(place, ARRAYS))
        after = a_table_of(samples, key=True)
        columns = [
            replace(column, number=number + 1, missing=sample.text if sample else None)
            for number, (column, sample) in enumerate(zip(after.columns, (None, *samples), strict=True))
        ]
        before, after = (replace(after, columns=tuple(each), width=len(each)) for each in (columns[:1], columns))
        fill(destination, spark, before, (1,))

        destination.write_events(Batch((), a_progress(100, after), (altered(before, after),)))
        texts = ["2", *(sample.text for sample in samples)]
        destination.write_table_rows(after, from_kafka(spark, after, texts), a_progress(101, after))

        first, second = printed(place, after)
        assert first[1:] == second[1:]
