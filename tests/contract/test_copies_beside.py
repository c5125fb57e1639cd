"""A table that is copied again is never seen empty or half filled, where a destination can build beside its mirror."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from apply_spark.destination import Batch
from apply_spark.destinations.postgres_beside import beside
from apply_spark.errors import TableFailed
from apply_spark.progress import Progress
from schemas.identifiers import TableName
from schemas.lsn import Lsn
from schemas.phases import DataSync, FinishedCopy, Phase, Ready, SyncDone
from tests.contract.destination_places import (
    EVENTS,
    FURTHER,
    ORDERS,
    ClickHousePlace,
    DeltaPlace,
    DuckDbPlace,
    IcebergPlace,
    Place,
    PostgresPlace,
    a_progress,
    changes,
    copied,
    fill,
    gone,
    make_place,
    upsert,
)
from tests.support.builders import INT8, a_column, a_table
from tests.support.failpoints import crashed

IN_A_DATABASE = ("duckdb", *(pytest.param(kind, marks=FURTHER) for kind in ("ducklake", "postgres")))
CLICKHOUSE, ICEBERG = (pytest.param(kind, marks=FURTHER) for kind in ("clickhouse", "iceberg"))
OTHER = a_table(a_column("note"), a_column("id", INT8, key=True))
"""Orders, in another shape."""


def tables_of(place: Place) -> list[Any]:
    """What somebody finds who looks around there."""
    match place:
        case DuckDbPlace():
            return place.query("select table_name from duckdb_tables() where schema_name = 'public' order by all")
        case PostgresPlace():
            return place.query(sql.SQL("select tablename from pg_tables where schemaname = 'public' order by 1"))
        case ClickHousePlace():
            return place.query("select database, count() from system.tables group by all order by all")
        case DeltaPlace():
            return sorted(place.path.rglob("_delta_log"))
        case IcebergPlace():
            return sorted(Path(place.options["warehouse"]).rglob("metadata"))
        case _:
            return []


@pytest.mark.parametrize("kind", ["memory", *IN_A_DATABASE, CLICKHOUSE, ICEBERG])
def test_readers_see_the_rows_of_before_until_the_new_copy_is_ready(
    kind: str, request: pytest.FixtureRequest, spark: SparkSession
) -> None:
    place = make_place(kind, request)
    destination = place.opened()
    destination.startup()
    fill(destination, spark, ORDERS, (1, "old", 1), (2, "old", 2))
    fill(destination, spark, EVENTS, ("x", 1), others=10)
    there, seen = tables_of(place), []

    def saw(phase: Phase, number: int) -> Progress:
        seen.append(sorted(place.rows(ORDERS)))
        return a_progress(number, OTHER, EVENTS, phase=phase)

    destination.drop_table_for_copy(OTHER, saw(DataSync(), 20))
    destination.write_table_rows(OTHER, copied(spark, OTHER, [("new", 2), ("new", 3)]), saw(DataSync(), 21))
    destination.shutdown()
    destination = place.opened()  # after a crash, say
    destination.startup()
    destination.write_events(Batch((changes(spark, OTHER, upsert("newer", 3), gone(2)),), saw(FinishedCopy(), 22)))
    destination.save_progress(saw(SyncDone(Lsn(23)), 23))
    destination.write_events(Batch((changes(spark, OTHER, upsert("last", 4)),), saw(Ready(), 24)))

    assert seen == [[(1, "old", 1), (2, "old", 2)]] * 5
    assert sorted(place.rows(OTHER)) == [("last", 4), ("newer", 3)]
    assert tables_of(place) == there
    destination.write_events(Batch((changes(spark, OTHER, gone(4)),), a_progress(25, OTHER, EVENTS)))
    assert place.rows(OTHER) == [("newer", 3)]
    assert place.rows(EVENTS) == [("x", 1)]
    destination.shutdown()


@pytest.mark.parametrize("kind", ["memory", *IN_A_DATABASE, CLICKHOUSE])
def test_a_copy_that_begins_again_replaces_the_one_that_was_built_so_far(
    kind: str, request: pytest.FixtureRequest, spark: SparkSession
) -> None:
    place = make_place(kind, request)
    destination = place.opened()
    destination.startup()
    fill(destination, spark, ORDERS, (1, "old", 1))
    for number in (20, 30):
        destination.drop_table_for_copy(ORDERS, a_progress(number, ORDERS, phase=DataSync()))
        rows = copied(spark, ORDERS, [(number, "new", 1)])
        destination.write_table_rows(ORDERS, rows, a_progress(number + 1, ORDERS, phase=DataSync()))

    assert place.rows(ORDERS) == [(1, "old", 1)]
    destination.save_progress(a_progress(40, ORDERS))
    assert place.rows(ORDERS) == [(30, "new", 1)]
    destination.shutdown()


@pytest.mark.further
@pytest.mark.parametrize(("kind", "passed"), [("delta", "made"), ("iceberg", "planned")])
def test_a_crash_while_rows_go_from_the_copy_to_the_mirror_loses_none_and_repeats_none(
    kind: str, passed: str, request: pytest.FixtureRequest, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make_place(kind, request)
    destination = place.opened()
    destination.startup()
    fill(destination, spark, ORDERS, (1, "old", 1))
    there, before = tables_of(place), a_progress(21, OTHER, phase=FinishedCopy())
    destination.drop_table_for_copy(OTHER, a_progress(20, OTHER, phase=DataSync()))
    destination.write_table_rows(OTHER, copied(spark, OTHER, [("new", 2)]), before)
    ready = Batch((changes(spark, OTHER, upsert("new", 3)),), a_progress(22, OTHER))
    assert place.rows(ORDERS) == [(1, "old", 1)]

    crashed(monkeypatch, f"{kind}.{passed}", lambda: destination.write_events(ready))

    assert place.rows(ORDERS) == [("new", 2) if passed == "made" else (1, "old", 1)]
    again = place.opened()
    assert again.startup() == before
    again.write_events(ready)
    assert sorted(place.rows(OTHER)) == [("new", 2), ("new", 3)]
    assert tables_of(place) == there
    again.shutdown()


@pytest.mark.parametrize("kind", [*IN_A_DATABASE, CLICKHOUSE, ICEBERG])
def test_a_copy_of_a_table_that_leaves_goes_with_it_and_nothing_else_does(
    kind: str, request: pytest.FixtureRequest, spark: SparkSession
) -> None:
    place = make_place(kind, request)
    destination = place.opened()
    destination.startup()
    fill(destination, spark, ORDERS, (1, "old", 1))
    fill(destination, spark, EVENTS, ("x", 1), others=10)
    there = tables_of(place)
    destination.drop_table_for_copy(ORDERS, a_progress(20, ORDERS, EVENTS, phase=DataSync()))
    assert tables_of(place) != there

    destination.save_progress(a_progress(21, EVENTS))

    assert tables_of(place) == there
    assert place.rows(ORDERS) == [(1, "old", 1)]
    destination.shutdown()


@pytest.mark.parametrize("kind", IN_A_DATABASE)
def test_a_table_with_the_name_of_an_unfinished_copy_is_refused(kind: str, request: pytest.FixtureRequest) -> None:
    destination = make_place(kind, request).opened()
    destination.startup()
    name = beside(ORDERS.name) if kind == "postgres" else TableName("public", "orders (penstock copy)")
    taken = a_table(a_column("id", INT8, key=True), name=name)

    with pytest.raises(TableFailed) as caught:
        destination.drop_table_for_copy(taken, a_progress(1, taken))

    assert "unfinished copies" in caught.value.reason
    destination.shutdown()
