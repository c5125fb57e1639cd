"""Rows and progress are one: all of a batch is there, or nothing of it, and a new process finds how far it came."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from apply_spark.destination import Batch, Destination
from apply_spark.errors import TableFailed
from destination_contract.batches import a_batch, a_progress, changes, copied, fill, gone, upsert
from destination_contract.place import Place, needs_mirror
from destination_contract.tables import ITEMS, ORDERS
from schemas.errors import Retry
from schemas.lsn import Lsn
from schemas.phases import DataSync, Errored, Init, Phase, SyncDone


class ProgressContract:
    """What is there after a failure, and after a restart."""

    def test_a_partial_row_without_a_base_stops_its_table_and_nothing_of_the_batch_is_written(
        self, place: Place, destination: Destination, spark: SparkSession
    ) -> None:
        needs_mirror(place)
        fill(destination, spark, ITEMS, ("old", 1, "a"))
        fill(destination, spark, ORDERS, (1, "a", 1), others=10)
        before = a_progress(50, ORDERS, ITEMS)
        destination.save_progress(before)
        good = changes(spark, ITEMS, upsert("new", 1, "a"), upsert("new", 2, "b"))

        for base in (None, (8,)):  # none at all, and one that is not there
            bad = changes(spark, ORDERS, gone(1), upsert(9, None, 1, missing=["note"], base=base))
            with pytest.raises(TableFailed) as caught:
                destination.write_events(a_batch(good, bad))
            assert caught.value.table == ORDERS.name
            assert "resync" in caught.value.solution

        assert place.rows(ORDERS) == [(1, "a", 1)]
        assert place.rows(ITEMS) == [("old", 1, "a")]
        assert _restarted(place, destination) == before

    def test_after_a_failed_table_the_batch_can_come_again_without_it(
        self, place: Place, destination: Destination, spark: SparkSession
    ) -> None:
        needs_mirror(place)
        fill(destination, spark, ITEMS, ("old", 1, "a"))
        fill(destination, spark, ORDERS, others=10)
        good = changes(spark, ITEMS, upsert("new", 1, "a"))
        with pytest.raises(TableFailed):
            destination.write_events(a_batch(good, changes(spark, ORDERS, upsert(9, None, 1, missing=["note"]))))

        destination.write_events(a_batch(good))

        assert place.rows(ITEMS) == [("new", 1, "a")]

    def test_two_tables_of_a_batch_are_written_with_one_progress(
        self, place: Place, destination: Destination, spark: SparkSession
    ) -> None:
        fill(destination, spark, ORDERS)
        fill(destination, spark, ITEMS, others=10)
        batch = a_batch(changes(spark, ORDERS, upsert(1, "a", 1)), changes(spark, ITEMS, upsert("n", 1, "a")))

        destination.write_events(batch)

        assert place.rows(ORDERS) == [(1, "a", 1)]
        assert place.rows(ITEMS) == [("n", 1, "a")]
        assert _restarted(place, destination) == batch.progress

    def test_progress_comes_back_from_a_restart_as_it_was_given_with_each_batch(
        self, place: Place, destination: Destination, spark: SparkSession
    ) -> None:
        phases: list[Phase] = [
            Init(),
            DataSync(),
            SyncDone(Lsn(2**64 - 1)),
            Errored('it "broke"', "mend\x00it", Retry.TIMED, 3, Init()),
        ]
        told = [a_progress(number, ORDERS, phase=phase) for number, phase in enumerate(phases)]
        late = replace(a_progress(5, ORDERS, ITEMS), lsn=Lsn(2**64 - 1), epoch=None)

        destination.drop_table_for_copy(ORDERS, told[0])
        first = _restarted(place, destination)
        again = place.opened()
        again.startup()
        again.write_table_rows(ORDERS, copied(spark, ORDERS, [(1, "a", 1)]), told[1])
        second = _restarted(place, again)
        again = place.opened()
        again.startup()
        again.write_events(Batch((changes(spark, ORDERS, gone(1)),), told[2]))
        third = _restarted(place, again)
        again = place.opened()
        again.startup()
        again.save_progress(told[3])
        again.save_progress(late)
        last = _restarted(place, again)

        assert [first, second, third, last] == [told[0], told[1], told[2], late]


def _restarted(place: Place, destination: Destination) -> object:
    """What a new process finds stored."""
    destination.shutdown()
    opened = place.opened()
    stored = opened.startup()
    opened.shutdown()
    return stored
