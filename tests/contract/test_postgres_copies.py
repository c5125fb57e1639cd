"""A Postgres mirror that is copied again: what somebody added to it stays, and a reader sees all rows at any time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from apply_spark.destinations.postgres import PostgresDestination
from apply_spark.destinations.postgres_beside import beside
from apply_spark.errors import TableFailed
from schemas.errors import Retry
from schemas.phases import DataSync, FinishedCopy
from tests.contract.destination_places import (
    LAKE,
    ORDERS,
    PostgresPlace,
    a_batch,
    a_progress,
    changes,
    copied,
    fill,
    upsert,
)
from tests.support.eventually import eventually

pytestmark = pytest.mark.further


def copy_again(postgres_lake: PostgresDestination, spark: SparkSession, *rows: tuple[object, ...]) -> None:
    """A new copy of ORDERS, complete but not ready."""
    postgres_lake.drop_table_for_copy(ORDERS, a_progress(20, ORDERS, phase=DataSync()))
    postgres_lake.write_table_rows(ORDERS, copied(spark, ORDERS, rows), a_progress(21, ORDERS, phase=FinishedCopy()))


def test_a_mirror_to_which_somebody_added_something_stays_and_gets_the_rows_of_the_new_copy(
    postgres_place: PostgresPlace, postgres_lake: PostgresDestination, spark: SparkSession
) -> None:
    fill(postgres_lake, spark, ORDERS, (1, "a", 1))
    with psycopg.connect(postgres_place.dsn) as user:
        user.execute("create view notes as select note from orders")
        user.execute("create index by_note on orders (note)")
        user.execute("grant select on orders to public")

    copy_again(postgres_lake, spark, (2, "b", 2), (3, "c", 3))
    assert postgres_place.query(sql.SQL("select * from notes")) == [("a",)]
    postgres_lake.save_progress(a_progress(22, ORDERS))

    assert sorted(postgres_place.query(sql.SQL("select * from notes"))) == [("b",), ("c",)]
    kept = "select indexname, has_table_privilege('pg_monitor', 'orders', 'select') from pg_indexes"
    found = postgres_place.query(sql.SQL(kept + " where tablename = 'orders' order by 1"))
    assert found == [("by_note", True), ("orders_pkey", True)]


@pytest.mark.parametrize(
    ("added", "replaced"),
    [(b"select", True), (b"grant select on orders to public", False), (b"create index on orders (note)", False)],
    ids=["nothing", "a grant", "an index"],
)
def test_a_copy_takes_the_place_of_a_mirror_to_which_nobody_added_anything_and_no_row_is_touched(
    postgres_place: PostgresPlace,
    postgres_lake: PostgresDestination,
    spark: SparkSession,
    *,
    added: bytes,
    replaced: bool,
) -> None:
    table = sql.SQL("select oid, relacl::text from pg_class where relname = 'orders'")
    key = sql.SQL("select conname from pg_constraint where conrelid = 'orders'::regclass and contype = 'p'")
    with psycopg.connect(postgres_place.dsn) as admin:
        admin.execute("alter default privileges in schema public grant select on tables to pg_monitor")
    fill(postgres_lake, spark, ORDERS, (1, "a", 1))
    ((old, rights),) = postgres_place.query(table)
    with psycopg.connect(postgres_place.dsn) as user:
        user.execute(added)

    copy_again(postgres_lake, spark, (2, "b", 2))
    written = postgres_place.query(sql.SQL("select xmin::text from {}").format(sql.Identifier(*beside(ORDERS.name))))
    postgres_lake.save_progress(a_progress(22, ORDERS))

    ((new, rights_now),) = postgres_place.query(table)
    assert (new != old) is replaced
    assert (postgres_place.query(sql.SQL("select xmin::text from orders")) == written) is replaced
    assert rights_now == rights or not replaced
    assert postgres_place.query(key) == [("orders_pkey",)]
    assert postgres_place.rows(ORDERS) == [(2, "b", 2)]


@pytest.mark.parametrize(
    "added", [b"select", b"create view notes as select note from orders"], ids=["nothing added", "a view added"]
)
def test_a_reader_that_polls_while_a_table_is_copied_again_sees_all_rows_each_time(
    postgres_place: PostgresPlace, postgres_lake: PostgresDestination, spark: SparkSession, added: bytes
) -> None:
    rows = [(number, "a", 1) for number in range(1000)]
    fill(postgres_lake, spark, ORDERS, *rows)
    seen: set[tuple[int, int]] = set()
    done = threading.Event()

    def poll() -> None:
        with psycopg.connect(postgres_place.dsn, autocommit=True) as reader:
            reader.execute(added)
            while not done.is_set():
                seen.update(reader.execute("select count(*), min(id) from orders").fetchall())

    with ThreadPoolExecutor(1, thread_name_prefix="reader") as pool:
        polling = pool.submit(poll)
        eventually(lambda: len(seen) == 1, what="the reader to read")
        copy_again(postgres_lake, spark, *[(10_000 + number, note, amount) for number, note, amount in rows])
        postgres_lake.save_progress(a_progress(22, ORDERS))
        eventually(lambda: (1000, 10_000) in seen, what="the reader to see the new copy")
        done.set()
        polling.result()

    assert seen == {(1000, 0), (1000, 10_000)}


def test_a_new_copy_waits_for_a_reader_that_holds_the_mirror_and_nothing_is_lost(
    postgres_place: PostgresPlace, spark: SparkSession
) -> None:
    postgres_lake = PostgresDestination(LAKE, {"dsn": postgres_place.dsn, "lock_timeout": "200ms"})
    postgres_lake.startup()
    fill(postgres_lake, spark, ORDERS, (1, "a", 1))
    copy_again(postgres_lake, spark, (2, "b", 2))
    with psycopg.connect(postgres_place.dsn) as reader:
        reader.execute("select * from orders")

        with pytest.raises(TableFailed, match=r"public\.orders.*LockNotAvailable") as caught:
            postgres_lake.save_progress(a_progress(22, ORDERS))
        assert caught.value.retry is Retry.TIMED
        assert reader.execute("select id from orders").fetchall() == [(1,)]

    postgres_lake.write_events(a_batch(changes(spark, ORDERS, upsert(3, "c", 3))))
    assert sorted(postgres_place.rows(ORDERS)) == [(2, "b", 2), (3, "c", 3)]
    postgres_lake.shutdown()
