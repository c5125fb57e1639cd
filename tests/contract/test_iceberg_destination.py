"""What the Iceberg destination promises beyond the contract: crashes between commits, who writes, maintenance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from apply_spark.destination import Alteration, Batch
from apply_spark.destinations.iceberg import IcebergDestination
from apply_spark.destinations.iceberg_mirror import IcebergMirror
from apply_spark.destinations.iceberg_table import Table, Transaction
from apply_spark.errors import DestinationTaken, TableFailed
from apply_spark.progress import Progress
from schemas.evolution import changes as changes_between
from schemas.table import Column, TableSchema
from tests.contract.destination_places import (
    EVENTS,
    ORDERS,
    IcebergPlace,
    a_batch,
    a_progress,
    bag_changes,
    changes,
    copied,
    fill,
    gone,
    in_a_folder,
    upsert,
)
from tests.contract.destination_types import NUMERIC_10_2, Sample, a_table_of, from_kafka
from tests.support.builders import INT8, a_column, a_table
from tests.support.failpoints import Crash, at, crash, crashed

pytestmark = pytest.mark.further

ID, NOTE = a_column("id", INT8, key=True, number=1), a_column("note", number=2)
PLAIN, RENAMED = a_table(ID, NOTE), a_table(ID, replace(NOTE, name="remark"))


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession) -> IcebergPlace:
    return in_a_folder(tmp_path, spark)


@pytest.fixture
def lake(place: IcebergPlace) -> Iterator[IcebergDestination]:
    destination = place.opened()
    destination.startup()
    yield destination
    destination.shutdown()


def once_before(monkeypatch: pytest.MonkeyPatch, owner: type, method: str, happens: Callable[[], object]) -> None:
    """Something happens before the next call of a method."""
    real, left = getattr(owner, method), [1]

    def called(*args: object) -> object:
        if left.pop() if left else 0:
            happens()
        return real(*args)

    monkeypatch.setattr(owner, method, called)


def altered(before: TableSchema, after: TableSchema) -> Alteration:
    made = changes_between(before, after)
    assert made is not None
    return Alteration(before, after, tuple(made))


def two_tables(lake: IcebergDestination, spark: SparkSession) -> Progress:
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


def maintain(place: IcebergPlace, schema: TableSchema) -> None:
    """All that an operator runs: rows into other files, and no snapshot left but the newest."""
    table = place.table(schema).partition(".")[2]
    place.spark.sql(
        f"call `{place.name}`.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))"
    ).collect()
    place.spark.sql(
        f"call `{place.name}`.system.expire_snapshots(table => '{table}', older_than => current_timestamp(),"
        " retain_last => 1)"
    ).collect()


def test_a_crash_between_two_commits_leaves_one_table_ahead_and_maintenance_then_takes_nothing_of_that(
    place: IcebergPlace, lake: IcebergDestination, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, batch = two_tables(lake, spark), a_swap_and_a_removal(spark)
    crashed(monkeypatch, "iceberg.committed", lambda: lake.write_events(batch))
    for schema in (ORDERS, EVENTS):
        maintain(place, schema)
        assert spark.sql(f"select * from {place.table(schema)}.snapshots").count() == 1

    again = place.opened()
    stored = again.startup()

    assert stored == before.with_tables(batch.progress.tables[ORDERS.name])
    assert sorted(place.rows(ORDERS)) == [(1, "two", 1), (2, "one", 2)]
    assert place.rows(EVENTS) == [("x", 1), ("x", 1)]
    again.write_events(Batch(batch.tables[1:], batch.progress))
    assert place.rows(EVENTS) == [("x", 1)]
    assert place.opened().startup() == batch.progress


@pytest.mark.parametrize("written", [0, 2])
def test_a_crash_before_the_first_commit_or_after_the_last_leaves_all_tables_on_one_side(
    place: IcebergPlace, lake: IcebergDestination, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    before, batch = two_tables(lake, spark), a_swap_and_a_removal(spark)
    crashed(
        monkeypatch,
        "iceberg.committed" if written else "iceberg.planned",
        lambda: lake.write_events(batch),
        passes=written or 1,
    )

    for _ in range(2):  # a start that ends at once changes nothing
        assert place.opened().startup() == (batch.progress if written else before)
    assert place.rows(EVENTS) == [("x", 1)] * (1 if written else 2)


def test_an_apply_that_was_replaced_writes_nothing(
    place: IcebergPlace, lake: IcebergDestination, spark: SparkSession
) -> None:
    fill(lake, spark, ORDERS, (1, "a", 1))
    place.opened().startup()
    attempts: list[Callable[[], None]] = [
        lambda: lake.write_events(a_batch(changes(spark, ORDERS, upsert(1, "b", 1)))),
        lambda: lake.write_table_rows(ORDERS, copied(spark, ORDERS, [(2, "b", 2)]), a_progress(60, ORDERS)),
        lambda: lake.drop_table_for_copy(ORDERS, a_progress(61, ORDERS)),
        lambda: lake.save_progress(a_progress(62, ORDERS)),
    ]

    for attempt in attempts:
        with pytest.raises(DestinationTaken):
            attempt()

    assert place.rows(ORDERS) == [(1, "a", 1)]
    assert place.opened().startup() == a_progress(2, ORDERS)


@pytest.mark.parametrize(
    ("what", "frozen"),
    [
        ("merge", "after its plan"),
        ("merge", "before its commit"),
        ("merge", "in its commit"),
        ("replace", "in its commit"),
        ("alter", "in its commit"),
    ],
)
def test_an_apply_that_was_frozen_and_replaced_writes_nothing_when_it_wakes(
    place: IcebergPlace,
    lake: IcebergDestination,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    frozen: str,
) -> None:
    fill(lake, spark, PLAIN, (1, "a"))
    before = a_progress(50, PLAIN)
    lake.save_progress(before)
    successor, found = place.opened(), []

    def replaced() -> None:
        found.append(successor.startup())

    def later() -> None:
        """From the plan on: the plan itself is a commit as well."""
        method = "move" if frozen == "before its commit" else "commit"
        once_before(monkeypatch, Transaction, method, replaced)

    at(monkeypatch, "iceberg.planned", replaced if frozen == "after its plan" else later)
    attempts: dict[str, Callable[[], None]] = {
        "merge": lambda: lake.write_events(a_batch(changes(spark, PLAIN, upsert(1, "late")))),
        "replace": lambda: lake.drop_table_for_copy(PLAIN, a_progress(60, PLAIN)),
        "alter": lambda: lake.write_events(Batch((), a_progress(60, RENAMED), (altered(PLAIN, RENAMED),))),
    }

    with pytest.raises(DestinationTaken):
        attempts[what]()

    assert found == [before]
    assert place.rows(PLAIN) == [(1, "a")]
    assert place.frame(PLAIN).columns == ["id", "note"]
    successor.write_events(a_batch(changes(spark, PLAIN, upsert(1, "b")), lsn=70))
    assert place.rows(PLAIN) == [(1, "b")]


def test_a_commit_that_meets_maintenance_is_made_again(
    place: IcebergPlace, lake: IcebergDestination, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_tables(lake, spark)
    batch = a_swap_and_a_removal(spark)
    once_before(monkeypatch, IcebergMirror, "_finished", lambda: maintain(place, ORDERS))

    lake.write_events(batch)

    assert sorted(place.rows(ORDERS)) == [(1, "two", 1), (2, "one", 2)]
    assert place.rows(EVENTS) == [("x", 1)]
    assert [row[0] for row in spark.sql(f"select name from {place.table(ORDERS)}.refs").collect()] == ["main"]
    assert place.opened().startup() == batch.progress


def test_a_new_column_with_a_default_is_whole_or_not_there_whenever_apply_crashes(
    place: IcebergPlace, lake: IcebergDestination, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = a_column("new", INT8, number=3, missing="7")
    after = a_table(replace(ID, name="note"), replace(NOTE, name="id"), new)
    fill(lake, spark, PLAIN, (1, "a"), (2, "b"))
    lake.save_progress(a_progress(50, PLAIN))
    whole = Batch((changes(spark, after, gone(1)),), a_progress(90, after), (altered(PLAIN, after),))
    once_before(monkeypatch, Table, "stage", crash)
    with pytest.raises(Crash):
        lake.write_events(whole)
    assert [tuple(row) for row in place.frame(PLAIN).select("id", "note").collect()] == [(1, "a"), (2, "b")]

    again = place.opened()
    assert again.startup() == a_progress(50, PLAIN)
    early = changes(spark, PLAIN, upsert(1, None, missing=["note"], base=(1,)), upsert(3, "c"))
    again.write_events(Batch((early,), a_progress(60, PLAIN)))
    again.write_table_rows(PLAIN, copied(spark, PLAIN, [(4, "d")]), a_progress(61, PLAIN))
    # After the shape, before the rows.
    crashed(monkeypatch, "iceberg.planned", lambda: again.write_events(whole), passes=2)
    assert sorted(place.rows(after)) == [(1, "a", 7), (2, "b", 7), (3, "c", 7), (4, "d", 7)]

    last = place.opened()
    assert last.startup() == a_progress(61, PLAIN)
    last.write_events(Batch((changes(spark, PLAIN, upsert(5, "e")),), a_progress(70, PLAIN)))
    last.write_events(whole)
    assert sorted(place.rows(after)) == [(2, "b", 7), (3, "c", 7), (4, "d", 7), (5, "e", 7)]
    assert place.frame(after).columns == ["note", "id", "new"]


@pytest.mark.parametrize(
    "statement",
    [
        "alter table {table} unset tblproperties ('penstock.mark.{name}')",
        "call `{name}`.system.rollback_to_snapshot('{plain}', {first})",
        "drop table {table}",
    ],
    ids=["mark removed", "rolled back", "gone"],
)
def test_a_mirror_of_which_apply_does_not_know_what_it_holds_stops_its_table(
    place: IcebergPlace, lake: IcebergDestination, spark: SparkSession, statement: str
) -> None:
    fill(lake, spark, ORDERS, (1, "a", 1))
    table = place.table(ORDERS)
    (first,) = spark.sql(f"select min_by(snapshot_id, committed_at) from {table}.snapshots").collect()[0]
    spark.sql(statement.format(table=table, name=place.name, plain=table.partition(".")[2], first=first))

    with pytest.raises(TableFailed, match="gone, or") as caught:
        lake.write_events(a_batch(changes(spark, ORDERS, upsert(1, "b", 1))))

    assert "resync" in caught.value.solution
    if "tblproperties" in statement:
        with pytest.raises(TableFailed, match="did not make"):
            lake.drop_table_for_copy(ORDERS, a_progress(200, ORDERS))
    else:
        fill(lake, spark, ORDERS, (2, "c", 2), others=200)
        assert place.rows(ORDERS) == [(2, "c", 2)]


def test_a_table_that_fails_after_another_was_written_says_so(
    place: IcebergPlace, lake: IcebergDestination, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, batch = two_tables(lake, spark), a_swap_and_a_removal(spark)
    spoiled = f"alter table {place.table(EVENTS)} rename column amount to price"
    at(monkeypatch, "iceberg.committed", lambda: spark.sql(spoiled))

    with pytest.raises(TableFailed, match="somebody changed it") as caught:
        lake.write_events(batch)

    assert caught.value.table == EVENTS.name
    assert caught.value.written == (batch.progress.tables[ORDERS.name],)
    assert place.opened().startup() == before.with_tables(*caught.value.written)


def test_values_that_have_no_place_stop_their_table_before_anything_is_written(
    place: IcebergPlace, lake: IcebergDestination, spark: SparkSession
) -> None:
    for sample in (Sample(1082, "infinity"), Sample(1700, "NaN", modifier=NUMERIC_10_2)):
        table = a_table_of((sample,), key=True)
        lake.drop_table_for_copy(table, a_progress(1, table))

        with pytest.raises(TableFailed, match="column c0"):
            lake.write_table_rows(table, from_kafka(spark, table, ["1", sample.text]), a_progress(2, table))

        assert place.rows(table) == []


def test_a_name_that_iceberg_keeps_for_itself_stops_the_table_that_has_it(lake: IcebergDestination) -> None:
    table = a_table(ID, a_column("_Deleted"))

    with pytest.raises(TableFailed, match="_Deleted"):
        lake.drop_table_for_copy(table, a_progress(1, table))


def test_columns_and_properties_are_those_that_a_reader_expects(place: IcebergPlace, lake: IcebergDestination) -> None:
    columns = (("price", 1700, NUMERIC_10_2), ("any", 1700, -1), ("at", 1184, -1), ("local", 1114, -1), ("n", 21, -1))
    arrays = (Column("tags", 1015, "varchar[]", 24), Column("doc", 3802, "jsonb"))
    table = a_table(ID, *[Column(name, oid, "", modifier) for name, oid, modifier in columns], *arrays)

    lake.drop_table_for_copy(table, a_progress(1, table))

    found = {field.name: field.dataType.simpleString() for field in place.frame(table).schema}
    assert found == {
        "id": "bigint",
        "price": "decimal(10,2)",
        "any": "string",
        "at": "timestamp",
        "local": "timestamp_ntz",
        "n": "int",
        "tags": "array<string>",
        "doc": "string",
    }
    properties = {row[0]: row[1] for row in place.spark.sql(f"show tblproperties {place.table(table)}").collect()}
    assert properties["format-version"] == "3"
    assert properties["write.merge.mode"] == "merge-on-read"
