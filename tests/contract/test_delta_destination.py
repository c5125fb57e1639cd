"""What the Delta destination promises beyond the contract: types, crashes between commits, who writes, maintenance."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from apply_spark.destination import Alteration, Batch
from apply_spark.destinations.delta import DeltaDestination
from apply_spark.errors import DestinationTaken, TableFailed
from apply_spark.progress import Progress
from schemas.evolution import changes as changes_between
from schemas.identifiers import TableName
from schemas.pg_types.registry import TYPES
from schemas.table import Column, TableSchema
from tests.contract.destination_places import (
    EVENTS,
    ITEMS,
    LAKE,
    ORDERS,
    DeltaPlace,
    a_batch,
    a_progress,
    bag_changes,
    changes,
    copied,
    fill,
    gone,
    upsert,
)
from tests.contract.destination_types import ARRAYS_OF_SPARK, NUMERIC_10_2, OF_SPARK, Sample, a_table_of, from_kafka
from tests.support.builders import INT8, a_column, a_table
from tests.support.failpoints import at, crashed

pytestmark = pytest.mark.further

UNHELD = "infinity"
SHOWN = {
    "t": "true",
    "f": "false",
    "1.1754944e-38": "1.1754944E-38",
    "5e-324": "4.9E-324",
    "-0": "-0.0",
    "\\x00ff4100": "\x00\ufffdA\x00",
    "10000-01-01 00:00:00+14": "9999-12-31 10:00:00",
}
"""How Spark prints what Postgres prints otherwise; before Java 19 it prints a digit more of the first number."""
SINGLE = tuple(sample for sample in OF_SPARK if sample.modifier == -1 and sample.type_oid in TYPES)
"""What arrays are made of."""


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession) -> DeltaPlace:
    return DeltaPlace(tmp_path, spark)


@pytest.fixture
def lake(place: DeltaPlace) -> Iterator[DeltaDestination]:
    destination = opened(place)
    destination.startup()
    yield destination
    destination.shutdown()


def opened(place: DeltaPlace) -> DeltaDestination:
    return DeltaDestination(LAKE, {"path": str(place.path)})


def shown(text: str) -> str:
    return SHOWN.get(text, text)


def test_values_of_every_type_read_as_in_postgres(
    place: DeltaPlace, lake: DeltaDestination, spark: SparkSession
) -> None:
    table = a_table_of(OF_SPARK, key=True)
    rows = from_kafka(spark, table, ["1", *(sample.text for sample in OF_SPARK)], ["2", *[None] * len(OF_SPARK)])
    lake.drop_table_for_copy(table, a_progress(1, table))

    lake.write_table_rows(table, rows, a_progress(2, table))

    (_, *texts), (_, *nothing) = sorted(place.texts(table))
    assert [text.replace("1.17549435", "1.1754944") for text in texts] == [shown(sample.text) for sample in OF_SPARK]
    assert set(nothing) == {None}


def test_arrays_hold_the_same_items_as_the_columns_of_their_type(
    place: DeltaPlace, lake: DeltaDestination, spark: SparkSession
) -> None:
    table = a_table_of(ARRAYS_OF_SPARK, key=True)
    scalars = replace(a_table_of(SINGLE, key=True), name=TableName("public", "scalars"))
    for number, (schema, samples) in enumerate([(table, ARRAYS_OF_SPARK), (scalars, SINGLE)]):
        texts = ["1", *(sample.text for sample in samples)]
        lake.drop_table_for_copy(schema, a_progress(10 * number + 1, schema))
        lake.write_table_rows(schema, from_kafka(spark, schema, texts), a_progress(10 * number + 2, schema))

    ((_, *arrays),) = place.rows(table)
    ((_, *values),) = place.rows(scalars)
    items = [item for array in arrays for item in array[1:]]
    assert [array[0] for array in arrays] == [None] * len(arrays)
    assert sorted(map(repr, items)) == sorted(map(repr, values))


@pytest.mark.parametrize(
    "sample",
    [
        Sample(1082, UNHELD),
        Sample(1082, "0044-03-15 BC"),
        Sample(1114, "10000-01-01 00:00:00"),
        Sample(1184, "-infinity"),
        Sample(1700, "NaN", modifier=NUMERIC_10_2),
        Sample(1007, "{{1,2},{3,4}}"),
        Sample(1182, "{2020-01-01,infinity}"),
    ],
    ids=lambda sample: sample.text,
)
def test_a_value_that_delta_cannot_hold_stops_its_table_and_nothing_of_the_batch_is_written(
    place: DeltaPlace, lake: DeltaDestination, spark: SparkSession, sample: Sample
) -> None:
    table = a_table_of((sample,), key=True)
    lake.drop_table_for_copy(table, a_progress(1, table))
    rows = from_kafka(spark, table, ["1", sample.text])

    with pytest.raises(TableFailed, match="column c0") as caught:
        lake.write_table_rows(table, rows, a_progress(2, table))

    assert sample.text not in caught.value.reason.replace("NaN or an infinity", "").replace("an infinity", "")
    assert place.rows(table) == []


def two_tables(lake: DeltaDestination, spark: SparkSession) -> Progress:
    """Orders and events, filled; the progress that a crash goes back to."""
    fill(lake, spark, ORDERS, (1, "one", 1), (2, "two", 2))
    fill(lake, spark, EVENTS, ("x", 1), ("x", 1), others=10)
    before = a_progress(50, ORDERS, EVENTS)
    lake.save_progress(before)
    return before


def a_swap_and_a_removal(spark: SparkSession) -> Batch:
    """What is not the same when it is written twice."""
    swap = [upsert(1, None, 1, missing=["note"], base=(2,)), upsert(2, None, 2, missing=["note"], base=(1,))]
    return a_batch(changes(spark, ORDERS, *swap), bag_changes(spark, EVENTS, (("x", 1), -1)))


def test_a_crash_between_the_commits_of_two_tables_leaves_one_of_them_ahead_and_each_is_written_once(
    place: DeltaPlace, lake: DeltaDestination, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, batch = two_tables(lake, spark), a_swap_and_a_removal(spark)
    crashed(monkeypatch, "delta.committed", lambda: lake.write_events(batch))

    again = opened(place)
    stored = again.startup()

    assert stored == before.with_tables(batch.progress.tables[ORDERS.name])
    assert sorted(place.rows(ORDERS)) == [(1, "two", 1), (2, "one", 2)]
    assert place.rows(EVENTS) == [("x", 1), ("x", 1)]
    again.write_events(Batch(batch.tables[1:], batch.progress))
    assert place.rows(EVENTS) == [("x", 1)]
    assert opened(place).startup() == batch.progress


@pytest.mark.parametrize("passed", ["delta.planned", "delta.committed"])
def test_a_crash_before_the_first_commit_or_after_the_last_leaves_all_tables_on_one_side(
    place: DeltaPlace, lake: DeltaDestination, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, passed: str
) -> None:
    before, batch = two_tables(lake, spark), a_swap_and_a_removal(spark)
    after_all = passed == "delta.committed"

    crashed(monkeypatch, passed, lambda: lake.write_events(batch), passes=2 if after_all else 1)

    for _ in range(2):  # a start that ends at once changes nothing
        assert opened(place).startup() == (batch.progress if after_all else before)
    assert place.rows(EVENTS) == [("x", 1)] * (1 if after_all else 2)


def test_an_apply_that_was_replaced_writes_nothing(
    place: DeltaPlace, lake: DeltaDestination, spark: SparkSession
) -> None:
    fill(lake, spark, ORDERS, (1, "a", 1))
    successor = opened(place)
    successor.startup()
    attempts: list[Callable[[], None]] = [
        lambda: lake.write_events(a_batch(changes(spark, ORDERS, upsert(1, "b", 1)))),
        lambda: lake.write_table_rows(ORDERS, copied(spark, ORDERS, [(2, "b", 2)]), a_progress(60, ORDERS)),
        lambda: lake.drop_table_for_copy(ORDERS, a_progress(61, ORDERS)),
        lambda: lake.save_progress(a_progress(62, ORDERS)),
    ]

    for attempt in attempts:
        with pytest.raises(DestinationTaken):
            attempt()

    for number in range(12):  # the file that the other would make next is gone by then
        successor.save_progress(a_progress(70 + number, ORDERS))
    with pytest.raises(DestinationTaken):
        attempts[0]()
    assert place.rows(ORDERS) == [(1, "a", 1)]
    assert opened(place).startup() == a_progress(81, ORDERS)


def test_an_apply_that_was_frozen_between_its_plan_and_its_commit_and_replaced_writes_nothing(
    place: DeltaPlace, lake: DeltaDestination, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it was about to commit; the next is frozen in the successor of the one before."""
    id_, note = a_column("id", INT8, key=True, number=1), a_column("note", number=2)
    table, after = a_table(id_, note), a_table(id_, replace(note, name="remark"))
    fill(lake, spark, table, (1, "a"))
    before = a_progress(50, table)
    lake.save_progress(before)
    attempts: list[Callable[[DeltaDestination], None]] = [
        lambda frozen: frozen.write_events(a_batch(changes(spark, table, upsert(1, "late")))),
        lambda frozen: frozen.write_table_rows(table, copied(spark, table, [(2, "late")]), a_progress(60, table)),
        lambda frozen: frozen.drop_table_for_copy(table, a_progress(60, table)),
        lambda frozen: frozen.write_events(Batch((), a_progress(60, after), (altered(table, after),))),
    ]

    found: list[Progress | None] = []
    last = lake
    for attempt in attempts:
        frozen, last = last, opened(place)
        at(monkeypatch, "delta.planned", lambda successor=last: found.append(successor.startup()))
        with pytest.raises(DestinationTaken):
            attempt(frozen)

    assert found == [before] * len(attempts)
    assert place.frame(table).columns == ["id", "note"]
    assert place.rows(table) == [(1, "a")]
    last.write_events(a_batch(changes(spark, table, upsert(1, "b")), lsn=70))
    assert place.rows(table) == [(1, "b")]


def test_progress_survives_optimize_vacuum_and_the_end_of_the_history(
    place: DeltaPlace, lake: DeltaDestination, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, batch = two_tables(lake, spark), a_swap_and_a_removal(spark)
    crashed(monkeypatch, "delta.committed", lambda: lake.write_events(batch))

    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")  # VACUUM makes 10,000 tasks
    for schema in (ORDERS, EVENTS):
        table = f"delta.`{place.folder(schema)}`"
        spark.sql(f"alter table {table} set tblproperties ('delta.checkpointInterval' = '1')")
        spark.sql(f"optimize {table}").collect()
        spark.sql(f"vacuum {table} retain 0 hours").collect()
        for old in sorted(Path(place.folder(schema), "_delta_log").glob("*.json"))[:-1]:
            old.unlink()
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]

    again = opened(place)
    assert again.startup() == before.with_tables(batch.progress.tables[ORDERS.name])
    again.write_events(Batch(batch.tables[1:], batch.progress))
    assert sorted(place.rows(ORDERS)) == [(1, "two", 1), (2, "one", 2)]
    assert place.rows(EVENTS) == [("x", 1)]


def altered(before: TableSchema, after: TableSchema) -> Alteration:
    made = changes_between(before, after)
    assert made is not None
    return Alteration(before, after, tuple(made))


def test_rows_of_an_older_shape_go_to_a_mirror_that_a_crash_left_in_a_later_one(
    place: DeltaPlace, lake: DeltaDestination, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = [a_column("id", INT8, key=True), a_column("a"), a_column("b"), a_column("c")]
    columns = [replace(column, number=number + 1) for number, column in enumerate(columns)]
    id_, a, b, _ = columns
    new = replace(a_column("new", INT8), number=5, missing="7")
    first = a_table(*columns)
    second = a_table(id_, replace(a, name="b"), replace(b, name="a"), new)
    fill(lake, spark, first, (1, "a1", "b1", "c1"), (2, "a2", "b2", "c2"))
    lake.save_progress(a_progress(50, first))
    lost = changes(spark, second, gone(1))
    whole = Batch((lost,), a_progress(90, second), (altered(first, second),))
    # After the shape, before the rows.
    crashed(monkeypatch, "delta.planned", lambda: lake.write_events(whole), passes=2)
    assert sorted(place.rows(second)) == [(1, "a1", "b1", 7), (2, "a2", "b2", 7)]

    again = opened(place)
    assert again.startup() == a_progress(50, first)
    early = changes(spark, first, upsert(1, None, "B", "C", missing=["a"], base=(1,)), upsert(3, "a3", "b3", "c3"))
    again.write_events(Batch((early,), a_progress(60, first)))
    between = a_table(id_, a, b)
    again.write_events(Batch((), a_progress(70, between), (altered(first, between),)))
    late = changes(spark, second, gone(2))
    again.write_events(Batch((late,), a_progress(90, second), (altered(first, second),)))

    assert sorted(place.rows(second)) == [(1, "a1", "B", 7), (3, "a3", "b3", 7)]


def test_a_table_that_fails_after_another_was_written_says_so(
    place: DeltaPlace, lake: DeltaDestination, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, batch = two_tables(lake, spark), a_swap_and_a_removal(spark)
    table = f"delta.`{place.folder(EVENTS)}`"
    at(monkeypatch, "delta.committed", lambda: spark.sql(f"alter table {table} rename column amount to price"))

    with pytest.raises(TableFailed, match="somebody changed it") as caught:
        lake.write_events(batch)

    assert caught.value.table == EVENTS.name
    assert caught.value.written == (batch.progress.tables[ORDERS.name],)
    assert opened(place).startup() == before.with_tables(*caught.value.written)


def test_a_mirror_that_is_gone_stops_its_table(place: DeltaPlace, lake: DeltaDestination, spark: SparkSession) -> None:
    fill(lake, spark, ORDERS, (1, "a", 1))
    shutil.rmtree(place.folder(ORDERS))

    with pytest.raises(TableFailed, match="gone") as caught:
        lake.write_events(a_batch(changes(spark, ORDERS, upsert(1, "b", 1))))

    assert "resync" in caught.value.solution
    fill(lake, spark, ORDERS, (2, "c", 2), others=200)
    assert place.rows(ORDERS) == [(2, "c", 2)]


def test_a_delta_table_that_somebody_else_made_is_not_replaced(
    place: DeltaPlace, lake: DeltaDestination, spark: SparkSession
) -> None:
    spark.range(3).write.format("delta").save(place.folder(ORDERS))

    with pytest.raises(TableFailed, match="did not make"):
        lake.drop_table_for_copy(ORDERS, a_progress(1, ORDERS))

    assert place.frame(ORDERS).count() == 3


@pytest.mark.parametrize(
    "schema",
    [
        a_table(a_column("id", INT8, key=True), a_column("ID")),
        a_table(a_column("id", INT8, key=True), name=TableName("shop", "ITEMS")),
        a_table(a_column("id", INT8, key=True), name=TableName("penstock", "t")),
    ],
    ids=["columns", "tables", "own"],
)
def test_names_that_delta_does_not_tell_apart_stop_the_table(lake: DeltaDestination, schema: TableSchema) -> None:
    with pytest.raises(TableFailed):
        lake.drop_table_for_copy(schema, a_progress(1, schema, ITEMS))


def test_columns_have_the_types_that_a_reader_expects(place: DeltaPlace, lake: DeltaDestination) -> None:
    table = a_table(
        a_column("id", INT8, key=True),
        Column("price", 1700, "numeric", NUMERIC_10_2),
        Column("any", 1700, "numeric"),
        Column("at", 1184, "timestamptz"),
        Column("local", 1114, "timestamp"),
        Column("tags", 1015, "varchar[]", 24),
        Column("doc", 3802, "jsonb"),
    )

    lake.drop_table_for_copy(table, a_progress(1, table))

    found = [(field.name, field.dataType.simpleString()) for field in place.frame(table).schema]
    assert found == [
        ("id", "bigint"),
        ("price", "decimal(10,2)"),
        ("any", "string"),
        ("at", "timestamp"),
        ("local", "timestamp_ntz"),
        ("tags", "array<string>"),
        ("doc", "string"),
    ]
