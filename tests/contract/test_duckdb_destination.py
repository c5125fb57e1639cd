"""What the DuckDB destination promises beyond the contract: types, names, the file, and who may write to it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from apply_spark.destination import Batch
from apply_spark.destinations.duckdb import DuckDbDestination
from apply_spark.errors import DestinationAway, DestinationInUse, DestinationLocked, DestinationTaken, TableFailed
from destination_contract.alterations import altered
from schemas.errors import ConfigError, DestinationError, Retry
from schemas.failpoints import ARMED, armed
from schemas.identifiers import DestinationName, TableName
from schemas.pg_types.registry import TYPES
from schemas.table import Column, TableSchema
from tests.contract.destination_places import (
    EVENTS,
    FURTHER,
    ITEMS,
    LAKE,
    ORDERS,
    DuckDbPlace,
    DuckLakePlace,
    a_batch,
    a_progress,
    changes,
    fill,
    gone,
    upsert,
)
from tests.contract.destination_types import (
    ARRAYS,
    NUMERIC_10_2,
    SAMPLES,
    Sample,
    a_table_of,
    from_kafka,
    shown_by_duckdb,
)
from tests.support.builders import INT8, a_column, a_table

UNHELD = "-Infinity"
"""A value that no decimal of DuckDB holds, and that must not be repeated."""
PRICES = a_table(
    a_column("id", INT8, key=True),
    a_column("note"),
    Column("price", 1700, "numeric", NUMERIC_10_2),
    name=TableName("public", "prices"),
)
_HOLDER = """
import duckdb, sys
held = duckdb.connect(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path) -> DuckDbPlace:
    return DuckDbPlace(tmp_path)


@pytest.fixture
def lake(place: DuckDbPlace) -> Iterator[DuckDbDestination]:
    destination = DuckDbDestination(LAKE, {"path": place.path})
    destination.startup()
    yield destination
    destination.shutdown()


@pytest.fixture(params=[DuckDbPlace, pytest.param(DuckLakePlace, marks=FURTHER)], ids=["file", "lake"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> DuckDbPlace:
    place: DuckDbPlace = request.param(tmp_path)
    return place


def test_values_of_every_type_read_as_in_postgres(either: DuckDbPlace, spark: SparkSession) -> None:
    table, lake = a_table_of(SAMPLES, key=True), either.opened()
    lake.startup()
    lake.drop_table_for_copy(table, a_progress(1, table))

    lake.write_table_rows(
        table, from_kafka(spark, table, ["1", *(sample.text for sample in SAMPLES)]), a_progress(2, table)
    )

    ((_, *texts),) = either.texts(table)
    assert texts == [shown_by_duckdb(sample) for sample in SAMPLES]
    lake.shutdown()


def test_arrays_hold_the_same_items_as_the_columns_of_their_type(either: DuckDbPlace, spark: SparkSession) -> None:
    table, lake = a_table_of(ARRAYS, key=True), either.opened()
    lake.startup()
    lake.drop_table_for_copy(table, a_progress(1, table))

    lake.write_table_rows(
        table, from_kafka(spark, table, ["1", *(sample.text for sample in ARRAYS)]), a_progress(2, table)
    )

    for number, array in enumerate(ARRAYS):
        items = either.query(f"select cast(unnest(c{number}) as varchar) from lake.public.types")
        assert [text for (text,) in items] == [None, *(shown_by_duckdb(sample) for sample in _elements(array))]
    lake.shutdown()


def test_columns_have_the_types_a_reader_expects(place: DuckDbPlace, lake: DuckDbDestination) -> None:
    table = a_table_of((*SAMPLES, *ARRAYS), key=True)

    lake.drop_table_for_copy(table, a_progress(1, table))

    found = dict(
        place.query("select column_name, data_type from information_schema.columns where table_name = 'types'")
    )
    by_type = {
        (column.type_oid, column.modifier): found[column.name] for column in table.columns if column.name != "id"
    }
    assert by_type[1700, -1] == "VARCHAR"
    assert by_type[1700, NUMERIC_10_2] == "DECIMAL(10,2)"
    assert by_type[1184, -1] == "TIMESTAMP WITH TIME ZONE"
    assert by_type[1185, -1] == "TIMESTAMP WITH TIME ZONE[]"
    assert by_type[2950, -1] == "UUID"
    assert by_type[17, -1] == "BLOB"
    assert by_type[26, -1] == "UINTEGER"
    assert by_type[3802, -1] == "JSON"


def test_a_value_that_duckdb_cannot_hold_stops_its_table_and_nothing_of_the_batch_is_written(
    place: DuckDbPlace, lake: DuckDbDestination, spark: SparkSession
) -> None:
    fill(lake, spark, ORDERS, (1, "a", 1))
    fill(lake, spark, PRICES, (1, "a", "1.00"), others=10)
    good = changes(spark, ORDERS, upsert(1, "changed", 1), upsert(2, "new", 2))
    bad = changes(spark, PRICES, upsert(2, "fits", "2.00"), upsert(3, "does not", UNHELD))

    with pytest.raises(TableFailed) as caught:
        lake.write_events(a_batch(good, bad))

    assert caught.value.table == PRICES.name
    assert "column price (decimal(10, 2))" in caught.value.reason
    assert UNHELD not in caught.value.reason + caught.value.solution
    assert caught.value.__cause__ is None
    assert "resync" in caught.value.solution
    assert place.rows(ORDERS) == [(1, "a", 1)]
    assert len(place.rows(PRICES)) == 1


def test_a_copied_value_that_duckdb_cannot_hold_names_its_column(
    place: DuckDbPlace, lake: DuckDbDestination, spark: SparkSession
) -> None:
    with pytest.raises(TableFailed, match=r"column price \(decimal\(10, 2\)\)") as caught:
        fill(lake, spark, PRICES, (1, "a", UNHELD))

    assert UNHELD not in caught.value.reason
    assert place.rows(PRICES) == []


@pytest.mark.parametrize(
    ("unheld", "reason"),
    [
        (Sample(1007, "{{1,2},{3,4}}"), "more than one dimension"),
        (Sample(1009, "[0:1]={a,NULL}"), "index 1"),
        (Sample(1114, "294247-01-10 04:00:54.775807"), "after 294247-01-10"),
        (Sample(1184, "294276-12-31 23:59:59.999999+00"), "after 294247-01-10"),
        (Sample(1115, '{"294276-12-31 23:59:59.999999"}'), "after 294247-01-10"),
        (Sample(1700, "-Infinity", modifier=NUMERIC_10_2), "NaN or an infinity"),
        (Sample(1231, "{1.00,NaN}", modifier=NUMERIC_10_2), "NaN or an infinity"),
    ],
    ids=lambda given: given.text if isinstance(given, Sample) else "",
)
def test_a_value_that_duckdb_has_no_place_for_is_refused_with_the_reason(
    place: DuckDbPlace, lake: DuckDbDestination, spark: SparkSession, unheld: Sample, reason: str
) -> None:
    table = a_table_of((unheld,), key=True)
    lake.drop_table_for_copy(table, a_progress(1, table))

    with pytest.raises(TableFailed) as caught:
        lake.write_table_rows(table, from_kafka(spark, table, ["1", unheld.text]), a_progress(2, table))

    assert "column c0" in caught.value.reason
    assert reason in caught.value.reason
    assert unheld.text not in caught.value.reason
    assert place.rows(table) == []


@pytest.mark.parametrize(
    "damage",
    [
        'drop table lake."public"."orders"',
        'alter table lake."public"."orders" add column mine int',
        'alter table lake."public"."orders" alter note set data type int using 1',
        'create unique index own on lake."public"."orders" (amount)',
    ],
    ids=["dropped", "another column", "another type", "a constraint"],
)
def test_a_mirror_that_somebody_changed_stops_its_table_only(
    place: DuckDbPlace, lake: DuckDbDestination, spark: SparkSession, damage: str
) -> None:
    fill(lake, spark, ITEMS)
    fill(lake, spark, ORDERS, (1, "a", 77_001), others=10)
    place.query(damage)
    good = changes(spark, ITEMS, upsert("n", 1, "a"))

    with pytest.raises(TableFailed) as caught:
        lake.write_events(a_batch(changes(spark, ORDERS, upsert(2, "b", 77_001)), good))
    lake.write_events(a_batch(good))

    assert caught.value.table == ORDERS.name
    assert "77001" not in caught.value.reason
    assert "resync" in caught.value.solution
    assert place.rows(ITEMS) == [("n", 1, "a")]


@pytest.mark.parametrize("name", ["penstock", "public", "main", "temp", "my.lake", 'quo"te', "blocks"])
def test_the_file_may_have_any_name_also_that_of_a_schema(tmp_path: Path, spark: SparkSession, name: str) -> None:
    destination = DuckDbDestination(LAKE, {"path": tmp_path / f"{name}.duckdb"})
    destination.startup()
    last = a_batch(changes(spark, ORDERS, upsert(1, None, 2, missing=["note"], base=(1,))))

    fill(destination, spark, ORDERS, (1, "a", 1))
    destination.write_events(last)
    destination.shutdown()

    again = DuckDbDestination(LAKE, {"path": tmp_path / f"{name}.duckdb"})
    assert again.startup() == last.progress
    again.shutdown()


def test_two_destinations_may_share_a_file_one_after_the_other(place: DuckDbPlace, lake: DuckDbDestination) -> None:
    lake.save_progress(a_progress(5, ORDERS))
    lake.shutdown()
    other = DuckDbDestination(DestinationName("other"), {"path": place.path})

    stored = other.startup()

    assert stored is None
    other.save_progress(a_progress(6, EVENTS))
    other.shutdown()
    assert lake.startup() == a_progress(5, ORDERS)


def test_a_second_apply_on_the_same_file_is_refused(place: DuckDbPlace, lake: DuckDbDestination) -> None:
    second = DuckDbDestination(LAKE, {"path": place.path})

    with pytest.raises(DestinationInUse, match=r"lake\.duckdb"):
        second.startup()

    lake.save_progress(a_progress(1))


def test_an_apply_that_was_frozen_while_another_took_over_writes_nothing(
    place: DuckDbPlace, lake: DuckDbDestination, spark: SparkSession
) -> None:
    fill(lake, spark, ORDERS, (1, "a", 1))
    lake.shutdown()  # as if its lock had been lost: the object goes on
    second = DuckDbDestination(LAKE, {"path": place.path})
    second.startup()
    second.write_events(a_batch(changes(spark, ORDERS, upsert(2, "second", 2)), lsn=200))

    with pytest.raises(DestinationTaken) as taken:
        lake.write_events(a_batch(changes(spark, ORDERS, gone(1), gone(2)), lsn=300))
    with pytest.raises(DestinationTaken):
        lake.drop_table_for_copy(ORDERS, a_progress(300, ORDERS))
    with pytest.raises(DestinationTaken):
        lake.save_progress(a_progress(300, ORDERS))

    assert "one apply" in taken.value.solution
    assert sorted(place.rows(ORDERS)) == [(1, "a", 1), (2, "second", 2)]
    second.shutdown()
    assert DuckDbDestination(LAKE, {"path": place.path}).startup() == a_progress(200, ORDERS)


def test_a_file_that_another_program_holds_is_waited_for_and_then_reported(
    place: DuckDbPlace, lake: DuckDbDestination
) -> None:
    lake.shutdown()
    impatient = DuckDbDestination(LAKE, {"path": place.path, "lock_timeout": "200ms"})
    with _holding(place.path) as holder:
        with pytest.raises(DestinationLocked, match="held by another program") as caught:
            impatient.startup()
        holder.communicate()

    assert caught.value.retry is Retry.TIMED
    assert "read-only" in caught.value.solution
    assert impatient.startup() is None


def test_a_file_that_a_reader_of_this_process_attached_is_waited_for_and_then_reported(place: DuckDbPlace) -> None:
    place.query("select 1")
    impatient = DuckDbDestination(LAKE, {"path": place.path, "lock_timeout": "100ms"})

    with duckdb.connect() as reader:
        reader.execute(f"attach '{place.path}' as held (read_only)")
        with pytest.raises(DestinationLocked):
            impatient.startup()

    assert impatient.startup() is None


def test_a_file_that_is_not_a_database_is_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "blocks.duckdb"
    path.write_bytes(b"this is not a database" * 1000)

    with pytest.raises(DestinationError, match="cannot open") as caught:
        DuckDbDestination(LAKE, {"path": path}).startup()

    assert not isinstance(caught.value, DestinationLocked)


def test_a_refused_start_lets_go_of_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lake.duckdb"
    path.write_bytes(b"this is not a database" * 1000)
    destination = DuckDbDestination(LAKE, {"path": path})
    with pytest.raises(DestinationError):
        destination.startup()
    path.unlink()

    assert destination.startup() is None


def test_an_option_that_is_nearly_right_is_corrected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean lock_timeout"):
        DuckDbDestination(LAKE, {"path": tmp_path / "x", "lock_timeuot": "1s"})


@pytest.mark.parametrize(
    ("table", "others"),
    [
        (a_table(a_column("Id", key=True), a_column("id")), []),
        (a_table(name=TableName("public", "Orders")), [ORDERS]),
        (a_table(name=TableName("Public", "orders")), [ORDERS]),
        (a_table(name=TableName("penstock", "orders")), []),
        (a_table(name=TableName("Penstock", "orders")), []),
    ],
    ids=["columns", "tables", "schemas", "own schema", "own schema in another case"],
)
def test_names_that_duckdb_does_not_tell_apart_are_refused(
    place: DuckDbPlace, lake: DuckDbDestination, table: TableSchema, others: list[TableSchema]
) -> None:
    with pytest.raises(TableFailed) as caught:
        lake.drop_table_for_copy(table, a_progress(1, table, *others))

    assert caught.value.table == table.name
    assert place.query("select table_name from information_schema.tables where table_schema <> 'penstock'") == []


def _elements(array: Sample) -> list[Sample]:
    """The samples that the array was made of."""
    element = TYPES[array.type_oid].element
    assert element is not None
    return [each for each in SAMPLES if each.modifier == -1 and each.type_oid == element.oid]


def _holding(path: Path) -> subprocess.Popen[bytes]:
    """Another program that has the file open, until its input ends."""
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    return holder


def test_a_table_that_takes_on_a_name_that_duckdb_does_not_tell_apart_stops(
    lake: DuckDbDestination, spark: SparkSession
) -> None:
    before = a_table(a_column("id", INT8, key=True, number=1), a_column("note", number=2))
    after = a_table(*before.columns, a_column("NOTE", number=3))
    fill(lake, spark, before, (1, "a"))

    with pytest.raises(TableFailed, match="upper and lower case"):
        lake.write_events(Batch((), a_progress(100, after), (altered(before, after),)))


@pytest.mark.parametrize(("passed", "action", "stored"), [("committing", "error", 10), ("committed", "drop", 20)])
def test_a_commit_that_fails_or_whose_answer_is_lost_is_told_and_the_next_start_knows_which_it_was(
    place: DuckDbPlace, lake: DuckDbDestination, monkeypatch: pytest.MonkeyPatch, passed: str, action: str, stored: int
) -> None:
    lake.save_progress(a_progress(10, ORDERS))
    monkeypatch.setitem(ARMED, f"duckdb.{passed}", armed(f"duckdb.{passed}", action))

    with pytest.raises(DestinationAway) as caught:
        lake.save_progress(a_progress(20, ORDERS))

    assert caught.value.retry is Retry.TIMED
    lake.shutdown()
    assert place.opened().startup() == a_progress(stored, ORDERS)
