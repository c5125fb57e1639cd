"""Values of every type that has a place there."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from apply_spark.destination import Destination, TableChanges
from apply_spark.rows import SparkRows
from destination_contract.batches import a_batch, a_progress, changes, upsert
from destination_contract.place import Place, held_at
from destination_contract.samples import ARRAYS, SAMPLES, Sample, a_table_of, comparable, from_kafka


class TypesContract:
    """A value stays what it is, and is found again."""

    @pytest.mark.parametrize("samples", [SAMPLES, ARRAYS], ids=["scalars", "arrays"])
    def test_values_of_every_type_are_the_same_after_they_were_taken_from_the_base(
        self, place: Place, destination: Destination, spark: SparkSession, samples: tuple[Sample, ...]
    ) -> None:
        samples = held_at(place, samples)
        table = a_table_of(samples, key=True)
        rows = from_kafka(spark, table, ["1", *(sample.text for sample in samples)], ["2", *[None] * len(samples)])
        destination.drop_table_for_copy(table, a_progress(1, table))
        destination.write_table_rows(table, rows, a_progress(2, table))
        unsent = [column.name for column in table.columns[1:]]

        destination.write_events(
            a_batch(changes(spark, table, upsert(3, *[None] * len(samples), missing=unsent, base=(1,))))
        )

        one, empty, three = sorted(place.rows(table), key=lambda row: row[0])
        assert comparable(one[1:]) == comparable(three[1:])
        assert None not in one
        assert set(empty[1:]) == {None}

    @pytest.mark.parametrize("samples", [SAMPLES, ARRAYS], ids=["scalars", "arrays"])
    def test_a_row_without_a_key_is_found_again_by_values_of_every_type(
        self, place: Place, destination: Destination, spark: SparkSession, samples: tuple[Sample, ...]
    ) -> None:
        samples = held_at(place, samples)
        table = a_table_of(samples, key=False)
        row = ["1", *(sample.text for sample in samples)]
        destination.drop_table_for_copy(table, a_progress(1, table))
        destination.write_table_rows(table, from_kafka(spark, table, row, row), a_progress(2, table))
        net = SparkRows(from_kafka(spark, table, row).frame().withColumn("net", F.lit(-1).cast("long")))

        destination.write_events(a_batch(TableChanges(table, truncate=False, rows=net, partial=False)))

        assert len(place.rows(table)) == 1
