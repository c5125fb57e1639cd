"""What a Destination promises, tried on every place that keeps rows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from apply_spark.destination import Batch, Destination, TableChanges
from apply_spark.errors import DestinationInUse, TableFailed
from apply_spark.rows import SparkRows
from schemas.envelope import avro_name
from schemas.errors import Retry
from schemas.identifiers import TableName
from schemas.lsn import Lsn
from schemas.pg_types.registry import SCALARS
from schemas.phases import DataSync, Errored, Init, SyncDone
from tests.contract.destination_places import (
    EVENTS,
    ITEMS,
    ORDERS,
    Place,
    a_batch,
    a_progress,
    bag_changes,
    changes,
    copied,
    fill,
    gone,
    needs_mirror,
    upsert,
)
from tests.contract.destination_types import ARRAYS, SAMPLES, Sample, a_table_of, comparable, from_kafka, held_at
from tests.support.builders import INT8, a_column, a_table


def test_a_new_destination_has_no_progress(place: Place) -> None:
    destination = place.opened()

    stored = destination.startup()

    assert stored is None
    destination.shutdown()


def test_shutting_down_what_was_never_started_does_nothing(place: Place) -> None:
    place.opened().shutdown()


def test_starting_what_is_started_is_refused(destination: Destination) -> None:
    with pytest.raises(DestinationInUse) as caught:
        destination.startup()

    assert caught.value.solution


def test_a_copy_arrives_in_pieces(place: Place, destination: Destination, spark: SparkSession) -> None:
    pieces = [[(1, "a", 1), (2, None, None)], [(3, "", 3)], []]

    destination.drop_table_for_copy(ORDERS, a_progress(1, ORDERS, phase=DataSync()))
    for number, piece in enumerate(pieces):
        destination.write_table_rows(ORDERS, copied(spark, ORDERS, piece), a_progress(2 + number, ORDERS))

    assert _sorted(place.rows(ORDERS)) == _sorted([(1, "a", 1), (2, None, None), (3, "", 3)])


def test_a_new_copy_empties_the_table_and_gives_it_its_new_shape(
    place: Place, destination: Destination, spark: SparkSession
) -> None:
    fill(destination, spark, ORDERS, (1, "a", 1))
    other = a_table(a_column("note"), a_column("id", INT8, key=True))

    fill(destination, spark, other, ("b", 1))

    assert place.rows(other) == [("b", 1)]


def test_copied_rows_of_a_table_without_a_key_may_be_alike(
    place: Place, destination: Destination, spark: SparkSession
) -> None:
    fill(destination, spark, EVENTS, (None, 1), (None, 1), ("x", 2))

    assert _sorted(place.rows(EVENTS)) == _sorted([(None, 1), (None, 1), ("x", 2)])


def test_rows_come_change_and_go(place: Place, destination: Destination, spark: SparkSession) -> None:
    fill(destination, spark, ORDERS, (1, "a", 1), (2, "b", 2), (3, "c", 3))

    destination.write_events(a_batch(changes(spark, ORDERS, upsert(2, None, 20), gone(3), upsert(4, "d", 4), gone(99))))

    assert _sorted(place.rows(ORDERS)) == _sorted([(1, "a", 1), (2, None, 20), (4, "d", 4)])


def test_a_truncate_is_done_before_the_rows(place: Place, destination: Destination, spark: SparkSession) -> None:
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


def test_a_truncate_alone_leaves_an_empty_table(place: Place, destination: Destination, spark: SparkSession) -> None:
    fill(destination, spark, ORDERS, (1, "a", 1))

    destination.write_events(a_batch(changes(spark, ORDERS, truncate=True)))

    assert place.rows(ORDERS) == []


def test_columns_that_were_not_sent_are_kept(place: Place, destination: Destination, spark: SparkSession) -> None:
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

    assert _sorted(place.rows(ORDERS)) == _sorted([(1, "a", 10), (2, None, 20), (3, None, None)])


def test_rows_that_moved_take_what_was_not_sent_from_where_they_were_before_the_batch(
    place: Place, destination: Destination, spark: SparkSession
) -> None:
    fill(destination, spark, ORDERS, (1, "one", 1), (2, "two", 2), (3, "three", 3))
    swap = [upsert(1, None, 1, missing=["note"], base=(2,)), upsert(2, None, 2, missing=["note"], base=(1,))]
    away = [gone(3), upsert(4, None, None, missing=["note", "amount"], base=(3,))]

    destination.write_events(a_batch(changes(spark, ORDERS, *swap, *away)))

    assert _sorted(place.rows(ORDERS)) == _sorted([(1, "two", 1), (2, "one", 2), (4, "three", 3)])


@pytest.mark.parametrize("base", [None, (8,)], ids=["no base", "a base that is not there"])
def test_a_partial_row_without_a_base_stops_its_table_and_nothing_of_the_batch_is_written(
    place: Place, destination: Destination, spark: SparkSession, base: tuple[int] | None
) -> None:
    needs_mirror(place)
    fill(destination, spark, ITEMS, ("old", 1, "a"))
    fill(destination, spark, ORDERS, (1, "a", 1), others=10)
    before = a_progress(50, ORDERS, ITEMS)
    destination.save_progress(before)
    good = changes(spark, ITEMS, upsert("new", 1, "a"), upsert("new", 2, "b"))
    bad = changes(spark, ORDERS, gone(1), upsert(9, None, 1, missing=["note"], base=base))

    with pytest.raises(TableFailed) as caught:
        destination.write_events(a_batch(good, bad))

    assert caught.value.table == ORDERS.name
    assert "resync" in caught.value.solution
    assert place.rows(ORDERS) == [(1, "a", 1)]
    assert place.rows(ITEMS) == [("old", 1, "a")]
    assert _restarted(place, destination) == before


def test_after_a_failed_table_the_batch_can_come_again_without_it(
    place: Place, destination: Destination, spark: SparkSession
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
    place: Place, destination: Destination, spark: SparkSession
) -> None:
    fill(destination, spark, ORDERS)
    fill(destination, spark, ITEMS, others=10)
    batch = a_batch(changes(spark, ORDERS, upsert(1, "a", 1)), changes(spark, ITEMS, upsert("n", 1, "a")))

    destination.write_events(batch)

    assert place.rows(ORDERS) == [(1, "a", 1)]
    assert place.rows(ITEMS) == [("n", 1, "a")]
    assert _restarted(place, destination) == batch.progress


def test_progress_comes_back_from_a_restart_as_it_was_given_with_each_batch(
    place: Place, destination: Destination, spark: SparkSession
) -> None:
    phases = [Init(), DataSync(), SyncDone(Lsn(2**64 - 1)), Errored('it "broke"', "mend\x00it", Retry.TIMED, 3, Init())]
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


def test_copies_of_a_row_without_a_key_come_and_go_by_number(
    place: Place, destination: Destination, spark: SparkSession
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

    assert _sorted(place.rows(EVENTS)) == _sorted(
        [("x", 1), (None, None), ("y", 1), ("y", 1), *[(None, 5)] * 3, ("once", 1), ("once", 1)]
    )


def test_a_row_without_a_key_is_found_by_equality_also_where_it_holds_nan_or_minus_zero(
    place: Place, destination: Destination, spark: SparkSession
) -> None:
    floats = a_table(a_column("x", FLOAT8), name=TableName("public", "floats"))
    fill(destination, spark, floats, (-0.0,), (0.0,), (-0.0,), (math.nan,), (math.nan,))

    destination.write_events(a_batch(bag_changes(spark, floats, ((0.0,), -2), ((math.nan,), -2))))

    assert place.rows(floats) == [(0.0,)]


def test_each_part_of_a_key_counts(place: Place, destination: Destination, spark: SparkSession) -> None:
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

    assert _sorted(place.rows(ITEMS)) == _sorted([("a", 1, "x"), ("changed", 1, "y"), ("a", 2, "y")])


FLOAT8 = 701
ODD_NAMES = (
    *("Mixed Case", 'quo"te', "a'b", "dot.ted", "größe", "日本", "1st", "_x20_", "select", "rowid", "range", "id"),
    *("row", "key", "base", "deleted", "missing", "net", "copy", "c0", "k0", "b0", "t", "s", "staged", "batch"),
)
"""What SQL, Avro or a destination's own statements could stumble over."""


@pytest.mark.parametrize(
    "name",
    [
        TableName('Odd "schema".x', "My Tàble"),
        TableName("select", "table"),
        TableName("main", "staged"),
        TableName("main", "batch"),
        TableName("lake", "lake"),
        TableName("temp", "orders"),
        TableName("system", "memory"),
    ],
    ids=str,
)
def test_odd_names_are_kept_as_they_are(
    place: Place, destination: Destination, spark: SparkSession, name: TableName
) -> None:
    columns = [a_column(odd, key=odd in ("row", "dot.ted")) for odd in ODD_NAMES]
    odd = a_table(*columns, name=name)
    first, second = (tuple(f"{number} {column}" for column in ODD_NAMES) for number in (1, 2))
    key = tuple(value for column, value in zip(columns, first, strict=True) if column.key)
    moved = tuple(value if column.key else None for column, value in zip(columns, second, strict=True))
    unsent = [avro_name(column.name) for column in columns if not column.key]

    fill(destination, spark, odd, first)
    destination.write_events(a_batch(changes(spark, odd, gone(*key), upsert(*moved, missing=unsent, base=key))))

    assert place.rows(odd) == [
        tuple(two if column.key else one for column, one, two in zip(columns, first, second, strict=True))
    ]


def test_odd_names_of_a_table_without_a_key_are_kept_as_they_are(
    place: Place, destination: Destination, spark: SparkSession
) -> None:
    odd = a_table(*(a_column(name) for name in ODD_NAMES), name=TableName("public", "net"))
    first, second = (tuple(f"{number} {column}" for column in ODD_NAMES) for number in (1, 2))

    fill(destination, spark, odd, first)
    destination.write_events(a_batch(bag_changes(spark, odd, (first, -1), (second, 2))))

    assert place.rows(odd) == [second, second]


def test_the_samples_are_of_every_way_in_which_a_value_travels() -> None:
    sampled = [known for known in SCALARS if known.oid in {sample.type_oid for sample in SAMPLES}]
    ways = [{(known.parse, str(known.avro), known.delimiter) for known in some} for some in (SCALARS, sampled)]
    assert ways[0] == ways[1]
    assert {array.type_oid for array in ARRAYS} == {known.array_oid for known in sampled}


@pytest.mark.parametrize("samples", [SAMPLES, ARRAYS], ids=["scalars", "arrays"])
def test_values_of_every_type_are_the_same_after_they_were_taken_from_the_base(
    place: Place, destination: Destination, spark: SparkSession, samples: tuple[Sample, ...]
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
    place: Place, destination: Destination, spark: SparkSession, samples: tuple[Sample, ...]
) -> None:
    samples = held_at(place, samples)
    table = a_table_of(samples, key=False)
    row = ["1", *(sample.text for sample in samples)]
    destination.drop_table_for_copy(table, a_progress(1, table))
    destination.write_table_rows(table, from_kafka(spark, table, row, row), a_progress(2, table))
    net = SparkRows(from_kafka(spark, table, row).frame().withColumn("net", F.lit(-1).cast("long")))

    destination.write_events(a_batch(TableChanges(table, truncate=False, rows=net, partial=False)))

    assert len(place.rows(table)) == 1


def _restarted(place: Place, destination: Destination) -> object:
    """What a new process finds stored."""
    destination.shutdown()
    opened = place.opened()
    stored = opened.startup()
    opened.shutdown()
    return stored


def _sorted(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)
