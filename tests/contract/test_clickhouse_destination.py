"""What the ClickHouse destination promises beyond the contract: types, crashes between its steps, who writes, tidiness.

The engine is that of ClickHouse, in the process of the test (chdb)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from apply_spark.destination import Alteration, Batch
from apply_spark.destinations import clickhouse, clickhouse_state
from apply_spark.destinations.clickhouse import ClickHouseDestination
from apply_spark.errors import DestinationAway, DestinationTaken, TableFailed
from apply_spark.progress import Progress
from schemas.evolution import changes as changes_between
from schemas.identifiers import DestinationName, TableName
from schemas.pg_types.registry import TYPES
from schemas.table import Column, TableSchema
from tests.contract.destination_places import (
    EVENTS,
    LAKE,
    ORDERS,
    ClickHousePlace,
    a_batch,
    a_progress,
    bag_changes,
    changes,
    copied,
    fill,
    gone,
    upsert,
)
from tests.contract.destination_types import (
    ARRAYS_OF_CLICKHOUSE,
    NUMERIC_10_2,
    OF_CLICKHOUSE,
    Sample,
    a_table_of,
    from_kafka,
)
from tests.support.builders import INT8, a_column, a_table

pytestmark = pytest.mark.further

SHOWN = {
    "t": "true",
    "f": "false",
    "NaN": "nan",
    "Infinity": "inf",
    "-Infinity": "-inf",
    "\\x00ff4100": "00ff4100",  # its client, for text that is none
    "12345678.90": "12345678.9",
    "2299-12-31 23:59:59.999999+00": "2299-12-31 23:59:59.999999",
    "1900-01-01 00:00:00": "1900-01-01 00:00:00.000000",
}
"""How ClickHouse prints what Postgres prints otherwise."""
SINGLE = tuple(sample for sample in OF_CLICKHOUSE if sample.modifier == -1 and sample.type_oid in TYPES)
"""What arrays are made of."""
NUMERIC = 1700


@pytest.fixture
def place(tmp_path: Path) -> ClickHousePlace:
    return ClickHousePlace(tmp_path)


@pytest.fixture
def lake(place: ClickHousePlace) -> Iterator[ClickHouseDestination]:
    destination = opened(place)
    destination.startup()
    yield destination
    destination.shutdown()


def opened(place: ClickHousePlace) -> ClickHouseDestination:
    return ClickHouseDestination(LAKE, place.options)


def restarted(place: ClickHousePlace) -> Progress | None:
    """What the next apply finds."""
    destination = opened(place)
    try:
        return destination.startup()
    finally:
        destination.shutdown()


class Crash(Exception):
    """The process is gone; nothing after it happens."""


def at(monkeypatch: pytest.MonkeyPatch, name: str, happens: Callable[[], None]) -> None:
    """Something happens when apply comes to a failpoint for the first time."""
    left = [name]

    def failpoint(passed: str) -> None:
        if passed in left:
            left.remove(passed)
            happens()

    monkeypatch.setattr(clickhouse, "failpoint", failpoint)


def crashed(monkeypatch: pytest.MonkeyPatch, name: str, doing: Callable[[], None]) -> None:
    def crash() -> None:
        raise Crash

    at(monkeypatch, name, crash)
    with pytest.raises(Crash):
        doing()


def shown(sample: Sample) -> str:
    """A numeric without precision is text."""
    is_text = sample.type_oid == NUMERIC and sample.modifier == -1
    return sample.text if is_text else SHOWN.get(sample.text, sample.text)


def own_tables(place: ClickHousePlace) -> list[str]:
    return [name for (name,) in place.query("select name from system.tables where database = 'penstock' order by name")]


def test_values_of_every_type_read_as_in_postgres(
    place: ClickHousePlace, lake: ClickHouseDestination, spark: SparkSession
) -> None:
    table = a_table_of(OF_CLICKHOUSE, key=True)
    texts = [sample.text for sample in OF_CLICKHOUSE]
    lake.drop_table_for_copy(table, a_progress(1, table))

    rows = from_kafka(spark, table, ["1", *texts], ["2", *[None] * len(texts)])
    lake.write_table_rows(table, rows, a_progress(2, table))

    (_, *found), (_, *nothing) = sorted(place.texts(table))
    assert found == [shown(sample) for sample in OF_CLICKHOUSE]
    assert set(nothing) == {None}


def test_arrays_hold_the_same_items_as_the_columns_of_their_type(
    place: ClickHousePlace, lake: ClickHouseDestination, spark: SparkSession
) -> None:
    table = a_table_of(ARRAYS_OF_CLICKHOUSE, key=True)
    scalars = replace(a_table_of(SINGLE, key=True), name=TableName("public", "scalars"))
    for number, (schema, samples) in enumerate([(table, ARRAYS_OF_CLICKHOUSE), (scalars, SINGLE)]):
        texts = ["1", *(sample.text for sample in samples)]
        lake.drop_table_for_copy(schema, a_progress(10 * number + 1, schema))
        lake.write_table_rows(schema, from_kafka(spark, schema, texts), a_progress(10 * number + 2, schema))

    ((_, *arrays),) = place.rows(table)
    ((_, *values),) = place.rows(scalars)
    items = [item for array in arrays for item in array[1:]]
    assert [array[0] for array in arrays] == [None] * len(arrays)
    assert sorted(map(repr, items)) == sorted(map(repr, values))


def test_an_array_that_no_list_can_hold_is_its_text_and_none_is_null_not_empty(
    place: ClickHousePlace, lake: ClickHouseDestination, spark: SparkSession
) -> None:
    table = a_table_of((Sample(1007, ""), Sample(1009, "")), key=True)
    lake.drop_table_for_copy(table, a_progress(1, table))

    rows = [["1", "{{1,2},{3,4}}", "[0:1]={a,b}"], ["2", "{}", "{}"], ["3", None, None], ["4", "{1,NULL}", "{NULL,x}"]]
    lake.write_table_rows(table, from_kafka(spark, table, *rows), a_progress(2, table))

    assert sorted(place.rows(table)) == [
        (1, "{{1,2},{3,4}}", "[0:1]={a,b}"),
        (2, [], []),
        (3, None, None),
        (4, [1, None], [None, "x"]),
    ]


@pytest.mark.parametrize(
    "sample",
    [
        Sample(1082, "infinity"),
        Sample(1082, "1899-12-31"),
        Sample(1114, "2300-01-01 00:00:00"),
        Sample(1184, "-infinity"),
        Sample(1700, "NaN", modifier=NUMERIC_10_2),
        Sample(1182, "{2020-01-01,infinity}"),
    ],
    ids=lambda sample: sample.text,
)
def test_a_value_that_clickhouse_cannot_hold_stops_its_table_and_nothing_of_the_batch_is_written(
    place: ClickHousePlace, lake: ClickHouseDestination, spark: SparkSession, sample: Sample
) -> None:
    table = a_table_of((sample,), key=True)
    lake.drop_table_for_copy(table, a_progress(1, table))
    rows = from_kafka(spark, table, ["1", sample.text])

    with pytest.raises(TableFailed, match="column c0") as caught:
        lake.write_table_rows(table, rows, a_progress(2, table))

    assert sample.text not in caught.value.reason.replace("NaN or an infinity", "").replace("an infinity", "")
    assert place.rows(table) == []


def two_tables(lake: ClickHouseDestination, spark: SparkSession) -> Progress:
    """Orders and events, filled; the progress that a crash goes back to."""
    fill(lake, spark, ORDERS, (1, "one", 1), (2, "two", 2))
    fill(lake, spark, EVENTS, ("x", 1), ("x", 1), others=10)
    before = a_progress(50, ORDERS, EVENTS)
    lake.save_progress(before)
    return before


def a_swap_and_a_removal(spark: SparkSession) -> Batch:
    """What is not the same when it is written twice."""
    swap = [upsert(1, None, 1, missing=["note"], base=(2,)), upsert(2, None, 2, missing=["note"], base=(1,))]
    return a_batch(changes(spark, ORDERS, *swap), bag_changes(spark, EVENTS, (("x", 1), -1), (("y", 2), 2)))


@pytest.mark.parametrize("passed", ["clickhouse.staged", "clickhouse.decided", "clickhouse.carried"])
def test_a_crash_leaves_all_tables_of_a_batch_on_one_side_and_each_change_is_written_once(
    place: ClickHousePlace,
    lake: ClickHouseDestination,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    passed: str,
) -> None:
    before, batch = two_tables(lake, spark), a_swap_and_a_removal(spark)
    crashed(monkeypatch, passed, lambda: lake.write_events(batch))

    decided = passed != "clickhouse.staged"
    for _ in range(2):  # a start that ends at once changes nothing
        assert restarted(place) == (batch.progress if decided else before)
    again = opened(place)
    again.startup()
    if not decided:
        again.write_events(batch)

    assert sorted(place.rows(ORDERS)) == [(1, "two", 1), (2, "one", 2)]
    assert sorted(place.rows(EVENTS)) == [("x", 1), ("y", 2), ("y", 2)]
    assert len(own_tables(place)) == 3  # the records, and two storages
    again.shutdown()


@pytest.mark.parametrize("schema", [ORDERS, EVENTS], ids=["with a key", "without"])
def test_a_piece_of_a_copy_that_comes_again_after_a_crash_is_there_once(
    place: ClickHousePlace,
    lake: ClickHouseDestination,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    schema: TableSchema,
) -> None:
    rows = [(1, "a", 1), (2, "b", 2)] if schema.key else [("a", 1), ("a", 1)]
    piece = copied(spark, schema, rows)
    lake.drop_table_for_copy(schema, a_progress(1, schema))
    passed = "clickhouse.copied" if schema.key else "clickhouse.staged"
    crashed(monkeypatch, passed, lambda: lake.write_table_rows(schema, piece, a_progress(2, schema)))

    again = opened(place)
    assert again.startup() == a_progress(1, schema)
    again.write_table_rows(schema, piece, a_progress(2, schema))

    assert sorted(place.rows(schema)) == rows
    again.shutdown()


def test_a_new_copy_and_a_truncate_exchange_what_is_behind_the_view_also_after_a_crash(
    place: ClickHousePlace, lake: ClickHouseDestination, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lake, spark, ORDERS, (1, "a", 1))
    other = a_table(a_column("note"), a_column("id", INT8, key=True))
    crashed(monkeypatch, "clickhouse.exchanging", lambda: lake.drop_table_for_copy(other, a_progress(10, other)))
    assert place.rows(ORDERS) == [(1, "a", 1)]

    again = opened(place)
    assert again.startup() == a_progress(10, other)
    assert place.rows(other) == []
    again.write_table_rows(other, copied(spark, other, [("b", 2)]), a_progress(11, other))
    again.write_events(a_batch(changes(spark, other, upsert("c", 3), truncate=True)))

    assert place.rows(other) == [("c", 3)]
    assert len(own_tables(place)) == 2
    again.shutdown()


def test_an_apply_that_was_replaced_writes_nothing(
    place: ClickHousePlace, lake: ClickHouseDestination, spark: SparkSession
) -> None:
    fill(lake, spark, ORDERS, (1, "a", 1))
    successor = opened(place)
    successor.startup()

    attempts: list[Callable[[], None]] = [
        lambda: lake.write_events(a_batch(changes(spark, ORDERS, upsert(1, "b", 1)))),
        lambda: lake.drop_table_for_copy(ORDERS, a_progress(61, ORDERS)),
        lambda: lake.save_progress(a_progress(62, ORDERS)),
    ]
    for attempt in attempts:
        with pytest.raises(DestinationTaken):
            attempt()

    assert place.rows(ORDERS) == [(1, "a", 1)]
    successor.save_progress(a_progress(70, ORDERS))
    successor.shutdown()
    assert restarted(place) == a_progress(70, ORDERS)


def test_what_an_apply_decided_before_it_froze_is_done_by_its_successor_and_later_rows_stay(
    place: ClickHousePlace, lake: ClickHouseDestination, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lake, spark, ORDERS, (1, "a", 1), (2, "b", 2))
    successor, found = opened(place), []

    def replaced() -> None:
        found.append(successor.startup())
        successor.write_events(a_batch(changes(spark, ORDERS, upsert(1, "later", 1), gone(2)), lsn=200))

    late = a_batch(changes(spark, ORDERS, upsert(1, "late", 1), upsert(2, "late", 2)))
    at(monkeypatch, "clickhouse.decided", replaced)
    with pytest.raises(TableFailed):
        lake.write_events(late)

    assert found == [late.progress]
    assert place.rows(ORDERS) == [(1, "later", 1)]
    with pytest.raises(DestinationTaken):
        lake.save_progress(a_progress(300, ORDERS))
    successor.shutdown()


def test_old_records_are_forgotten_and_an_apply_that_is_far_behind_is_refused(
    place: ClickHousePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clickhouse_state, "_IN_A_PARTITION", 4)
    frozen, lake = opened(place), opened(place)
    frozen.startup()
    lake.startup()

    for number in range(15):
        lake.save_progress(a_progress(number, ORDERS))

    ((records, first),) = place.query("select count(), min(version) from penstock.destinations")
    assert records < 10
    assert first > 3
    with pytest.raises(DestinationTaken):
        frozen.save_progress(a_progress(99, ORDERS))
    frozen.shutdown()
    lake.shutdown()
    assert restarted(place) == a_progress(14, ORDERS)


def altered(before: TableSchema, after: TableSchema) -> Alteration:
    made = changes_between(before, after)
    assert made is not None
    return Alteration(before, after, tuple(made))


def test_rows_and_shapes_survive_merges_and_what_was_dropped_is_gone(
    place: ClickHousePlace, lake: ClickHouseDestination, spark: SparkSession
) -> None:
    id_, a = a_column("id", INT8, key=True, number=1), a_column("a", number=2)
    before = a_table(id_, a, a_column("b", number=3))
    after = a_table(id_, replace(a, name="b"), a_column("new", INT8, number=4, missing="7"))
    fill(lake, spark, before, (1, "a1", "b1"), (2, "a2", "b2"))

    rows = changes(spark, after, gone(1), upsert(3, "a3", 8))
    lake.write_events(Batch((rows,), a_progress(100, after), (altered(before, after),)))
    (storage,) = [name for name in own_tables(place) if name.startswith("public_orders")]
    place.command(f"optimize table penstock.{storage} final")

    assert sorted(place.rows(after)) == [(2, "a2", 7), (3, "a3", 8)]
    columns = place.query(f"select count() from system.columns where database = 'penstock' and table = '{storage}'")
    assert columns == [(5,)]  # id, a, new, and two of penstock's


def test_a_view_has_the_columns_of_the_source_in_types_that_a_reader_expects(
    place: ClickHousePlace, lake: ClickHouseDestination
) -> None:
    table = a_table(
        a_column("id", INT8, key=True),
        Column("price", 1700, "numeric", NUMERIC_10_2),
        Column("any", 1700, "numeric"),
        Column("at", 1184, "timestamptz"),
        Column("day", 1082, "date"),
        Column("tags", 1015, "varchar[]", 24),
        Column("doc", 3802, "jsonb"),
    )

    lake.drop_table_for_copy(table, a_progress(1, table))

    assert place.query("select name, type from system.columns where database = 'mirror_public' order by position") == [
        ("id", "Int64"),
        ("price", "Nullable(Decimal(10, 2))"),
        ("any", "Nullable(String)"),
        ("at", "Nullable(DateTime64(6, 'UTC'))"),
        ("day", "Nullable(Date32)"),
        ("tags", "Variant(Array(Nullable(String)), String)"),
        ("doc", "Nullable(String)"),
    ]


def test_a_storage_that_somebody_dropped_stops_its_table_and_the_others_are_written(
    place: ClickHousePlace, lake: ClickHouseDestination, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, batch = two_tables(lake, spark), a_swap_and_a_removal(spark)
    (storage,) = [name for name in own_tables(place) if name.startswith("public_events")]
    at(monkeypatch, "clickhouse.decided", lambda: place.command(f"drop table penstock.{storage}"))

    with pytest.raises(TableFailed, match="somebody dropped it") as caught:
        lake.write_events(batch)

    assert caught.value.table == EVENTS.name
    assert caught.value.written == (batch.progress.tables[ORDERS.name],)
    assert sorted(place.rows(ORDERS)) == [(1, "two", 1), (2, "one", 2)]
    lake.shutdown()
    assert restarted(place) == batch.progress.with_tables(before.tables[EVENTS.name])
    again = opened(place)
    again.startup()
    fill(again, spark, EVENTS, ("z", 3), others=200)
    assert place.rows(EVENTS) == [("z", 3)]
    again.shutdown()


def test_a_table_that_somebody_else_made_is_not_replaced(
    place: ClickHousePlace, lake: ClickHouseDestination, spark: SparkSession
) -> None:
    place.command("create database mirror_public")
    place.command("create table mirror_public.orders engine = MergeTree order by tuple() as select 1 as x")
    other = ClickHouseDestination(DestinationName("other"), place.options)
    other.startup()
    fill(other, spark, EVENTS, ("x", 1))

    for schema in (ORDERS, EVENTS):
        with pytest.raises(TableFailed, match="did not make"):
            lake.drop_table_for_copy(schema, a_progress(1, schema))

    assert place.rows(ORDERS) == [(1,)]
    assert place.rows(EVENTS) == [("x", 1)]
    other.shutdown()


def test_a_schema_that_has_the_name_of_penstocks_database_is_refused() -> None:
    table = a_table(name=TableName("penstock", "t"))
    lake = ClickHouseDestination(LAKE, {"dsn": "chdb://memory"})

    with pytest.raises(TableFailed, match="penstock's own"):
        lake.drop_table_for_copy(table, a_progress(1, table))


def test_a_server_that_does_not_answer_is_told_without_its_password() -> None:
    away = ClickHouseDestination(LAKE, {"dsn": "http://user:hunter2@127.0.0.1:1"})

    with pytest.raises(DestinationAway) as caught:
        away.startup()

    assert "hunter2" not in repr(caught.value) + repr(caught.value.__cause__)
    away.shutdown()
