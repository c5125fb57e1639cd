"""What the change log in Parquet promises beyond the contract, on a disk and on S3: its names, its columns, crashes,
and who writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession

from apply_spark.destination import Batch
from apply_spark.destinations.parquet import ParquetDestination
from apply_spark.errors import DestinationTaken, TableFailed
from schemas.identifiers import TableName
from schemas.table import Column
from tests.contract.destination_places import (
    EVENTS,
    LAKE,
    ORDERS,
    ParquetPlace,
    a_batch,
    a_progress,
    bag_changes,
    changes,
    copied,
    fill,
    gone,
    make_place,
    upsert,
)
from tests.contract.destination_types import NUMERIC_10_2, Sample, a_table_of, from_kafka
from tests.support.builders import INT8, a_column, a_table
from tests.support.failpoints import crashed

pytestmark = pytest.mark.further


@pytest.fixture(params=["parquet", "parquet-s3"])
def place(request: pytest.FixtureRequest) -> ParquetPlace:
    made = make_place(request.param, request)
    assert isinstance(made, ParquetPlace)
    return made


@pytest.fixture
def log(place: ParquetPlace) -> Iterator[ParquetDestination]:
    destination = place.opened()
    destination.startup()
    yield destination
    destination.shutdown()


def files(place: ParquetPlace) -> list[str]:
    return [name for name in place.log.names() if name.endswith(".parquet")]


def newest(place: ParquetPlace) -> list[dict[str, object]]:
    """What the last manifest tells of tables."""
    tables: list[dict[str, object]] = place.log.manifests(LAKE)[-1]["tables"]
    return tables


def test_an_interval_is_one_file_a_table_named_by_its_lsns_and_one_manifest_for_all(
    place: ParquetPlace, log: ParquetDestination, spark: SparkSession
) -> None:
    fill(log, spark, ORDERS, (1, "a", 1))
    fill(log, spark, EVENTS, others=10)
    log.save_progress(a_progress(50, ORDERS, EVENTS))

    rows = changes(spark, ORDERS, gone(1), upsert(2, None, 2, missing=["note"], base=(1,)), truncate=True)
    log.write_events(a_batch(rows, bag_changes(spark, EVENTS, (("x", 1), 2))))

    name = "0000000000000007/0000000000000032-0000000000000064.parquet"
    assert [(entry["file"], entry["row_count"]) for entry in newest(place)] == [
        (f"public/orders/{name}", 3),
        (f"public/events/{name}", 1),
    ]
    lsns = {"_from_lsn": 50, "_lsn": 100}
    assert place.log.read(f"public/orders/{name}").to_pylist() == [
        {"_op": "t", **lsns, "_missing": None, "_base": None, "id": None, "note": None, "amount": None},
        {"_op": "d", **lsns, "_missing": [], "_base": None, "id": 1, "note": None, "amount": None},
        {"_op": "u", **lsns, "_missing": ["note"], "_base": {"id": 1}, "id": 2, "note": None, "amount": 2},
    ]
    assert place.log.read(f"public/events/{name}").to_pylist() == [
        {"_op": "u", **lsns, "_net": 2, "note": "x", "amount": 1}
    ]


@pytest.mark.parametrize("passed", ["parquet.renaming", "parquet.written"])
def test_a_crash_in_the_middle_of_a_batch_shows_nothing_of_it_and_the_batch_gets_the_same_names_again(
    place: ParquetPlace,
    log: ParquetDestination,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    passed: str,
) -> None:
    fill(log, spark, ORDERS, (1, "a", 1))
    before = a_progress(50, ORDERS)
    log.save_progress(before)
    batch = a_batch(changes(spark, ORDERS, upsert(1, "b", 2)))
    crashed(monkeypatch, passed, lambda: log.write_events(batch))
    assert place.rows(ORDERS) == [(1, "a", 1)]

    again = place.opened()
    assert again.startup() == before
    again.write_events(batch)

    assert place.rows(ORDERS) == [(1, "b", 2)]
    assert len(files(place)) == 2
    assert place.opened().startup() == batch.progress


def test_an_apply_that_was_replaced_makes_nothing_visible(
    place: ParquetPlace, log: ParquetDestination, spark: SparkSession
) -> None:
    fill(log, spark, ORDERS, (1, "a", 1))
    successor = place.opened()
    successor.startup()
    attempts: list[Callable[[], None]] = [
        lambda: log.write_events(a_batch(changes(spark, ORDERS, upsert(1, "b", 1)))),
        lambda: log.write_table_rows(ORDERS, copied(spark, ORDERS, [(2, "b", 2)]), a_progress(60, ORDERS)),
        lambda: log.drop_table_for_copy(ORDERS, a_progress(61, ORDERS)),
        lambda: log.save_progress(a_progress(62, ORDERS)),
    ]

    for attempt in attempts:
        with pytest.raises(DestinationTaken):
            attempt()

    assert place.rows(ORDERS) == [(1, "a", 1)]


def test_the_log_keeps_what_a_new_copy_and_a_truncate_take_away(
    place: ParquetPlace, log: ParquetDestination, spark: SparkSession
) -> None:
    fill(log, spark, ORDERS, (1, "a", 1))
    log.write_events(a_batch(changes(spark, ORDERS, truncate=True)))
    fill(log, spark, ORDERS, (2, "b", 2), others=200)

    assert place.rows(ORDERS) == [(2, "b", 2)]
    assert len(files(place)) == 3


@pytest.mark.parametrize(
    "sample",
    [
        Sample(1082, "infinity"),
        Sample(1184, "-infinity"),
        Sample(1114, "294276-12-31 23:59:59.999999"),
        Sample(1700, "NaN", modifier=NUMERIC_10_2),
        Sample(1007, "{{1,2},{3,4}}"),
    ],
    ids=lambda sample: sample.text,
)
def test_a_value_that_parquet_cannot_hold_stops_its_table_and_nothing_of_the_batch_is_shown(
    place: ParquetPlace, log: ParquetDestination, spark: SparkSession, sample: Sample
) -> None:
    table = a_table_of((sample,), key=True)
    log.drop_table_for_copy(table, a_progress(1, table))
    rows = from_kafka(spark, table, ["1", sample.text])

    with pytest.raises(TableFailed, match="column c0"):
        log.write_table_rows(table, rows, a_progress(2, table))

    assert place.rows(table) == []


def test_columns_have_the_types_that_a_reader_expects(
    place: ParquetPlace, log: ParquetDestination, spark: SparkSession
) -> None:
    table = a_table(
        a_column("id", INT8, key=True),
        Column("price", 1700, "numeric", NUMERIC_10_2),
        Column("at", 1184, "timestamptz"),
        Column("local", 1114, "timestamp"),
        Column("tags", 1015, "varchar[]", 24),
    )
    log.drop_table_for_copy(table, a_progress(1, table))

    texts = ["1", "1.50", "2020-01-01 00:00:00+00", "2020-01-01 00:00:00", "{a,NULL}"]
    log.write_table_rows(table, from_kafka(spark, table, texts), a_progress(2, table))

    (file,) = files(place)
    found = place.log.read(file).schema
    assert [(field.name, str(field.type)) for field in found][5:] == [
        ("id", "int64"),
        ("price", "decimal128(10, 2)"),
        ("at", "timestamp[us, tz=UTC]"),
        ("local", "timestamp[us]"),
        ("tags", "list<element: string>"),
    ]


@pytest.mark.parametrize(
    "schema",
    [a_table(a_column("id", INT8, key=True), a_column("_op")), a_table(name=TableName("penstock", "t"))],
    ids=["a column of the log", "own"],
)
def test_names_that_the_log_has_itself_stop_the_table(log: ParquetDestination, schema: object) -> None:
    with pytest.raises(TableFailed):
        log.drop_table_for_copy(schema, a_progress(1, schema))  # type: ignore[arg-type]


def test_a_batch_without_rows_is_progress_alone(place: ParquetPlace, log: ParquetDestination) -> None:
    log.write_events(Batch((), a_progress(5, ORDERS)))

    assert newest(place) == []
    assert files(place) == []
