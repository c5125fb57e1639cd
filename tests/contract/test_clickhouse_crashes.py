"""ClickHouse has no transactions: whatever is cut off, and whoever writes, each change is there once.

The engine is that of ClickHouse, in the process of the test (chdb)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError
from pyspark.sql import SparkSession

from apply_spark.destination import Batch
from apply_spark.destinations import clickhouse, clickhouse_state
from apply_spark.destinations.clickhouse import ClickHouseDestination
from apply_spark.errors import DestinationTaken, TableFailed
from apply_spark.progress import Progress
from schemas.errors import DestinationError
from schemas.table import TableSchema
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
from tests.support.builders import INT8, a_column, a_table
from tests.support.failpoints import at, crashed

pytestmark = pytest.mark.further


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


def own_tables(place: ClickHousePlace) -> list[str]:
    return [name for (name,) in place.query("select name from system.tables where database = 'penstock' order by name")]


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


@pytest.mark.parametrize("lost", ["the answer to the decision", "the rest of the rows"])
def test_what_was_decided_is_done_by_the_next_start_though_clickhouse_failed_in_between(
    place: ClickHousePlace,
    lake: ClickHouseDestination,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    lost: str,
) -> None:
    two_tables(lake, spark)
    batch = a_swap_and_a_removal(spark)
    error = DatabaseError("too much", code=241, name="MEMORY_LIMIT_EXCEEDED")

    with monkeypatch.context() as patched:
        if lost == "the rest of the rows":
            patched.setattr(clickhouse, "carry_over", _failing(error))
        else:
            patched.setattr(lake._states, "_forget", _failing(error))
            patched.setattr(clickhouse_state, "_IN_A_PARTITION", 1)
        with pytest.raises(DestinationError):
            lake.write_events(batch)
    lake.shutdown()

    assert restarted(place) == batch.progress
    assert sorted(place.rows(ORDERS)) == [(1, "two", 1), (2, "one", 2)]
    assert sorted(place.rows(EVENTS)) == [("x", 1), ("y", 2), ("y", 2)]


def _failing(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail
