"""What the DuckLake destination promises beyond the contract: who may write, where the metadata is, maintenance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from apply_spark.destinations.ducklake import DuckLakeDestination, load_extension
from apply_spark.errors import DestinationAway, DestinationInUse, DestinationLocked, DestinationTaken
from schemas.errors import DestinationError, Retry
from tests.contract.destination_places import (
    EVENTS,
    LAKE,
    ORDERS,
    PostgresPlace,
    a_batch,
    a_progress,
    bag_changes,
    changes,
    copied,
    fill,
    gone,
    upsert,
)
from tests.support.failpoints import at

pytestmark = pytest.mark.further


@pytest.fixture(params=["file", "postgres"])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    catalog = str(tmp_path / "lake.ducklake")
    if request.param == "postgres":
        catalog = f"postgres:{PostgresPlace(request.getfixturevalue('postgres')).dsn}"
    return {"catalog": catalog, "data_path": str(tmp_path / "it's files")}


@pytest.fixture
def lake(options: dict[str, Any]) -> Iterator[DuckLakeDestination]:
    destination = DuckLakeDestination(LAKE, options)
    destination.startup()
    yield destination
    destination.shutdown()


def test_rows_with_and_without_a_key_come_and_go_in_one_transaction(
    options: dict[str, Any], lake: DuckLakeDestination, spark: SparkSession
) -> None:
    fill(lake, spark, ORDERS, *((number, "copied", number) for number in range(100)))
    fill(lake, spark, EVENTS, ("a", 1), ("a", 1), ("b", 2), others=10)

    lake.write_events(
        a_batch(
            changes(spark, ORDERS, gone(7), upsert(8, None, 80, missing=["note"], base=(8,))),
            bag_changes(spark, EVENTS, (("a", 1), -1), (("c", 3), 2)),
        )
    )

    assert query(options, "select count(*), max(amount) filter (id = 8 and note = 'copied') from orders") == [(99, 80)]
    assert query(options, "select * from events order by all") == [("a", 1), ("b", 2), ("c", 3), ("c", 3)]


def test_a_second_apply_is_refused_while_the_first_one_runs(options: dict[str, Any], lake: DuckLakeDestination) -> None:
    with pytest.raises(DestinationInUse):
        DuckLakeDestination(LAKE, options).startup()

    lake.save_progress(a_progress(1))


def test_an_apply_that_was_frozen_while_another_took_over_writes_nothing(
    options: dict[str, Any], lake: DuckLakeDestination, spark: SparkSession
) -> None:
    fill(lake, spark, ORDERS, (1, "a", 1))
    lake.shutdown()  # as if its lock had been lost: the object goes on
    second = DuckLakeDestination(LAKE, options)
    second.startup()
    second.write_events(a_batch(changes(spark, ORDERS, upsert(2, "second", 2)), lsn=200))

    with pytest.raises(DestinationTaken):
        lake.write_events(a_batch(changes(spark, ORDERS, gone(1), gone(2)), lsn=300))

    assert query(options, "select * from orders order by id") == [(1, "a", 1), (2, "second", 2)]
    second.shutdown()


def test_progress_and_rows_survive_the_maintenance_of_the_lake(
    options: dict[str, Any], lake: DuckLakeDestination, spark: SparkSession
) -> None:
    fill(lake, spark, ORDERS, *((number, "copied", number) for number in range(100)))
    for number in range(3):
        lake.write_events(a_batch(changes(spark, ORDERS, gone(number)), lsn=100 + number))
    rows = query(options, "select * from orders order by id")

    query(
        options,
        "call ducklake_flush_inlined_data('lake')",
        "call ducklake_rewrite_data_files('lake', delete_threshold => 0)",
        "call ducklake_merge_adjacent_files('lake')",
        "call ducklake_expire_snapshots('lake', older_than => now())",
        "call ducklake_cleanup_old_files('lake', cleanup_all => true)",
    )

    assert query(options, "select * from orders order by id") == rows
    lake.shutdown()
    assert lake.startup() == a_progress(102, ORDERS)


@pytest.mark.parametrize("options", ["postgres"], indirect=True)
@pytest.mark.parametrize(
    "meanwhile",
    ["call ducklake_merge_adjacent_files('lake')", "call ducklake_rewrite_data_files('lake', delete_threshold => 0)"],
    ids=["merged", "rewritten"],
)
def test_a_commit_that_meets_maintenance_is_refused_as_a_whole_and_the_batch_may_come_again(
    options: dict[str, Any],
    lake: DuckLakeDestination,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: str,
) -> None:
    fill(lake, spark, ORDERS)
    for piece in range(3):  # a file each
        rows = [(number, "copied", number) for number in range(piece * 50, piece * 50 + 50)]
        lake.write_table_rows(ORDERS, copied(spark, ORDERS, rows), a_progress(10 + piece, ORDERS))
    lake.write_events(a_batch(changes(spark, ORDERS, gone(0)), lsn=90))
    batch = a_batch(changes(spark, ORDERS, upsert(1, "changed", 1), upsert(60, "changed", 60)))

    at(monkeypatch, "duckdb.deleted", lambda: query(options, meanwhile))
    with pytest.raises(DestinationLocked) as caught:
        lake.write_events(batch)
    lake.write_events(batch)

    assert caught.value.retry is Retry.TIMED
    assert query(options, "select count(*), count(*) filter (note = 'changed') from orders") == [(149, 2)]


def test_a_catalog_that_does_not_answer_is_told_without_its_password(tmp_path: Path) -> None:
    options = {"catalog": "postgres:host=127.0.0.1 port=1 password=secret", "data_path": str(tmp_path)}

    with pytest.raises(DestinationAway) as caught:
        DuckLakeDestination(LAKE, options).startup()

    assert "secret" not in f"{caught.value.reason}{caught.value.solution}{caught.value.__cause__}"


def test_a_file_that_is_no_catalog_is_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "lake.ducklake"
    path.write_bytes(b"this is not a database" * 1000)

    with pytest.raises(DestinationError, match="cannot open"):
        DuckLakeDestination(LAKE, {"catalog": str(path), "data_path": str(tmp_path)}).startup()


def query(options: dict[str, Any], *statements: str) -> list[tuple[Any, ...]]:
    """What a client of the lake reads."""
    with reader(options) as client:
        return [client.execute(statement).fetchall() for statement in statements][-1]


def reader(options: dict[str, Any]) -> duckdb.DuckDBPyConnection:
    client = duckdb.connect()
    for extension in ("ducklake", "postgres_scanner"):
        load_extension(client, extension)
    client.execute(f"attach 'ducklake:{options['catalog']}' as lake")
    client.execute("use lake.public" if _has_tables(client) else "use lake")
    return client


def _has_tables(client: duckdb.DuckDBPyConnection) -> bool:
    return bool(client.execute("select 1 from duckdb_schemas() where schema_name = 'public'").fetchall())
