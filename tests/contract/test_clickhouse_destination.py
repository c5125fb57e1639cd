"""What the ClickHouse destination promises beyond the contract: types, crashes between its steps, who writes, tidiness.

The engine is that of ClickHouse, in the process of the test (chdb)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from apply_spark.destination import Alteration, Batch
from apply_spark.destinations.clickhouse import ClickHouseDestination
from apply_spark.errors import DestinationAway, TableFailed
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
    changes,
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


def test_a_key_may_be_an_array_with_null_in_it(
    place: ClickHousePlace, lake: ClickHouseDestination, spark: SparkSession
) -> None:
    table = a_table(a_column("path", 1007, key=True), a_column("note"), name=TableName("public", "paths"))
    lake.drop_table_for_copy(table, a_progress(1, table))
    lake.write_table_rows(table, from_kafka(spark, table, ["{1,NULL}", "a"], ["{1}", "b"]), a_progress(2, table))

    first, second = ([1, None], None), ([1], None)
    lake.write_events(
        a_batch(changes(spark, table, gone(first), upsert(second, None, missing=["note"], base=(second,))))
    )

    assert place.rows(table) == [([1], "b")]


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
