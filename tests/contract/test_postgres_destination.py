"""What the Postgres destination promises beyond the contract: types, what is staged, and who may write."""

from __future__ import annotations

import os
import secrets
import socket

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from apply_spark.destinations.postgres import PostgresDestination
from apply_spark.destinations.postgres_merge import Staged, settle
from apply_spark.errors import DestinationAway, DestinationInUse, DestinationTaken, TableFailed
from apply_spark.rows import ArrowRows
from console.local_stack.postgres import LocalPostgres
from schemas.errors import DestinationError, Retry
from schemas.identifiers import TableName
from schemas.table import Column
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
from tests.contract.destination_types import ARRAYS, SAMPLES, Sample, a_table_of, from_kafka
from tests.support.builders import INT8, a_column, a_table

pytestmark = pytest.mark.further

UNHELD = "日本"
"""What LATIN1 has no letters for, and must not be repeated."""
ONLY_POSTGRES = (
    Sample(1114, "294276-12-31 23:59:59.999999"),
    Sample(1184, "294276-12-31 23:59:59.999999+00"),
    Sample(1115, '{"294276-12-31 23:59:59.999999",infinity,NULL}'),
    Sample(1007, "{{1,2},{3,NULL}}"),
    Sample(1182, "[0:1]={2020-01-01,infinity}"),
    Sample(1001, '{"\\\\x00ff",NULL,"\\\\x"}'),
    Sample(1020, "{(2,2),(1,1);(4,4),(3,3)}"),
    Sample(1560, "101", modifier=3),
    Sample(790, "$1,234.56"),
    Sample(142, "<a>b</a>"),
    Sample(2205, "shop.orders"),
)
"""What other destinations have no place for, and types that are held as themselves here only."""


def printed(postgres_place: PostgresPlace, sample: Sample, kind: str) -> str | None:
    """The sample as the server prints it, given in its own type."""
    query = sql.SQL("select {}::{}::text").format(sql.Literal(sample.text), sql.SQL(kind))
    return postgres_place.query(query)[0][0]


@pytest.mark.parametrize("samples", [SAMPLES, ARRAYS, ONLY_POSTGRES], ids=["scalars", "arrays", "only Postgres"])
@pytest.mark.parametrize("written", ["from executors", "from here"])
def test_values_of_every_type_read_as_at_the_source(
    postgres_place: PostgresPlace,
    postgres_lake: PostgresDestination,
    spark: SparkSession,
    samples: tuple[Sample, ...],
    written: str,
) -> None:
    table = a_table_of(samples, key=True)
    rows = from_kafka(spark, table, ["1", *(sample.text for sample in samples)], ["2", *[None] * len(samples)])
    postgres_lake.drop_table_for_copy(table, a_progress(1, table))

    postgres_lake.write_table_rows(
        table, ArrowRows(spark, rows.arrow()) if written == "from here" else rows, a_progress(2, table)
    )

    (_, *texts), (_, *nothing) = sorted(postgres_place.texts(table))
    types = postgres_place.query(
        sql.SQL(
            """select format_type(atttypid, atttypmod) from pg_attribute
                where attrelid = 'public.types'::regclass and attnum > 1 order by attnum"""
        )
    )
    assert texts == [printed(postgres_place, sample, kind) for sample, (kind,) in zip(samples, types, strict=True)]
    assert set(nothing) == {None}


def test_columns_have_the_types_that_they_had_at_the_source(
    postgres_place: PostgresPlace, postgres_lake: PostgresDestination
) -> None:
    table = a_table(
        a_column("id", INT8, key=True),
        Column("price", 1700, "numeric", (10 << 16 | 2) + 4),
        Column("code", 1043, "varchar", 24),
        Column("tags", 1015, "varchar[]", 24),
        Column("mood", 70_000, "mood"),
        Column("moods", 70_001, "mood[]", delimiter=","),
        Column("of", 2205, "regclass"),
    )

    postgres_lake.drop_table_for_copy(table, a_progress(1, table))

    found = postgres_place.query(
        sql.SQL(
            """select format_type(atttypid, atttypmod), attnotnull from pg_attribute
                where attrelid = 'public.orders'::regclass and attnum > 0 order by attnum"""
        )
    )
    assert found == [
        ("bigint", True),
        ("numeric(10,2)", False),
        ("character varying(20)", False),
        ("character varying(20)[]", False),
        ("text", False),
        ("text[]", False),
        ("text", False),
    ]


def test_a_key_that_is_written_differently_is_the_same_key_and_read_as_it_was_written(
    postgres_place: PostgresPlace, postgres_lake: PostgresDestination, spark: SparkSession
) -> None:
    prices = a_table(Column("price", 1700, "numeric", key=True), a_column("note"))
    fill(postgres_lake, spark, prices, ("1.0", "a"))

    postgres_lake.write_events(a_batch(changes(spark, prices, upsert("1.00", "b"))))

    assert postgres_place.texts(prices) == [("1.00", "b")]


def test_nothing_is_left_staged_and_what_a_crash_left_is_cleared_at_the_next_start(
    postgres_place: PostgresPlace, postgres_lake: PostgresDestination, spark: SparkSession
) -> None:
    staged = sql.SQL("select relname from pg_class where relname like 'staged%'")
    fill(postgres_lake, spark, ORDERS, (1, "a", 1))
    postgres_lake.write_events(a_batch(changes(spark, ORDERS, upsert(1, "b", 1))))
    assert postgres_place.query(staged) == []
    with psycopg.connect(postgres_place.dsn) as crashed:
        crashed.execute(sql.SQL("create table penstock.{} ()").format(sql.Identifier(f"{postgres_lake._prefix}0123_0")))
    postgres_lake.shutdown()

    postgres_lake.startup()

    assert postgres_place.query(staged) == []


def test_what_a_task_wrote_that_spark_does_not_count_is_not_used(postgres_place: PostgresPlace) -> None:
    table = sql.Identifier("public", "staging")
    with psycopg.connect(postgres_place.dsn) as db:
        db.execute(sql.SQL("create table {} (part int, attempt bigint, c0 text)").format(table))
        db.execute(sql.SQL("insert into {} values (0, 1, 'a'), (0, 2, 'a'), (1, 3, 'b'), (2, 1, 'x')").format(table))

        settle(db, Staged(ORDERS, table, (), attempts=((0, 2), (1, 3))))

        assert db.execute(sql.SQL("select c0 from {} order by 1").format(table)).fetchall() == [("a",), ("b",)]


def test_a_task_that_still_writes_when_the_others_are_counted_is_ended_and_not_waited_for(
    postgres_place: PostgresPlace,
) -> None:
    table = sql.Identifier("public", "staging")
    with psycopg.connect(postgres_place.dsn, autocommit=True) as db, psycopg.connect(postgres_place.dsn) as given_up:
        db.execute(sql.SQL("create table {} (part int, attempt bigint, c0 text)").format(table))
        db.execute(sql.SQL("insert into {} values (0, 2, 'a')").format(table))
        given_up.execute(sql.SQL("insert into {} values (0, 1, 'a')").format(table))

        with db.transaction():
            db.execute("set local lock_timeout = '30s'")
            settle(db, Staged(ORDERS, table, (), attempts=((0, 2),)))

        assert db.execute(sql.SQL("select attempt from {}").format(table)).fetchall() == [(2,)]
        with pytest.raises(psycopg.OperationalError):
            given_up.execute("select")


def test_a_value_that_the_database_cannot_hold_stops_its_table_and_nothing_of_the_batch_is_written(
    postgres: LocalPostgres, spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    name = f"latin_{secrets.token_hex(4)}"
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute(
            sql.SQL("create database {} template template0 encoding 'LATIN1' locale 'C'").format(sql.Identifier(name))
        )
    postgres_lake = PostgresDestination(LAKE, {"dsn": postgres.dsn(name)})
    request.addfinalizer(postgres_lake.shutdown)
    postgres_lake.startup()
    items = a_table(a_column("id", INT8, key=True), a_column("note"), name=TableName("public", "items"))
    fill(postgres_lake, spark, ORDERS, (1, "a", 1))
    fill(postgres_lake, spark, items, (1, "a"), others=10)

    with pytest.raises(TableFailed) as caught:
        postgres_lake.write_events(
            a_batch(changes(spark, ORDERS, upsert(1, "b", 1)), changes(spark, items, upsert(1, UNHELD)), lsn=100)
        )

    assert caught.value.table == items.name
    assert UNHELD not in caught.value.reason
    with psycopg.connect(postgres.dsn(name)) as reader:
        assert reader.execute("select note from orders").fetchall() == [("a",)]


def test_another_apply_is_refused(postgres_place: PostgresPlace, postgres_lake: PostgresDestination) -> None:
    with pytest.raises(DestinationInUse):
        PostgresDestination(LAKE, {"dsn": postgres_place.dsn}).startup()

    postgres_lake.shutdown()
    other = PostgresDestination(LAKE, {"dsn": postgres_place.dsn})
    other.startup()
    other.shutdown()


def test_lost_packets_end_the_session_at_both_ends_in_bounded_time(postgres_lake: PostgresDestination) -> None:
    session = postgres_lake._connected
    with socket.socket(fileno=os.dup(session.pgconn.socket)) as own:
        ours = [
            own.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
        ]
    theirs = [
        int(session.execute(f"select current_setting('tcp_keepalives_{name}')").fetchone()[0])  # type: ignore[index]
        for name in ("idle", "interval", "count")
    ]

    assert ours == [10, 5, 3, 30_000]
    assert theirs == ours[:3]


def test_an_apply_that_was_replaced_writes_nothing(
    postgres_place: PostgresPlace, postgres_lake: PostgresDestination, spark: SparkSession
) -> None:
    fill(postgres_lake, spark, ORDERS, (1, "a", 1))
    with psycopg.connect(postgres_place.dsn) as successor:
        successor.execute("update penstock.destination set owner = 'somebody else'")

    with pytest.raises(DestinationTaken):
        postgres_lake.write_events(a_batch(changes(spark, ORDERS, upsert(1, "b", 1))))

    assert postgres_place.rows(ORDERS) == [(1, "a", 1)]


@pytest.mark.parametrize(
    ("code", "retry"),
    [("insufficient_privilege", Retry.TIMED), ("disk_full", Retry.TIMED), ("check_violation", Retry.MANUAL)],
)
def test_a_table_says_whether_time_may_heal_it(
    postgres_place: PostgresPlace, postgres_lake: PostgresDestination, spark: SparkSession, code: str, retry: Retry
) -> None:
    fill(postgres_lake, spark, ORDERS, (1, "a", 1))
    with psycopg.connect(postgres_place.dsn, autocommit=True) as admin:
        admin.execute(
            f"create function refuse() returns trigger language plpgsql as $$ begin raise {code}; end $$",
        )
        admin.execute("create trigger refuse before insert on orders execute function refuse()")

    with pytest.raises(TableFailed, match=r"public\.orders") as caught:
        postgres_lake.write_events(a_batch(changes(spark, ORDERS, upsert(2, "b", 2))))

    assert caught.value.retry is retry
    assert postgres_place.rows(ORDERS) == [(1, "a", 1)]


def test_a_mirror_that_somebody_holds_is_reported(postgres_place: PostgresPlace, spark: SparkSession) -> None:
    postgres_lake = PostgresDestination(LAKE, {"dsn": postgres_place.dsn, "lock_timeout": "200ms"})
    postgres_lake.startup()
    fill(postgres_lake, spark, ORDERS, (1, "a", 1))
    with psycopg.connect(postgres_place.dsn) as other:
        other.execute("lock table orders")

        with pytest.raises(TableFailed, match=r"public\.orders.*LockNotAvailable") as caught:
            postgres_lake.write_table_rows(ORDERS, copied(spark, ORDERS, [(2, "b", 2)]), a_progress(50, ORDERS))
        assert caught.value.retry is Retry.TIMED

    postgres_lake.write_table_rows(ORDERS, copied(spark, ORDERS, [(2, "b", 2)]), a_progress(50, ORDERS))
    assert sorted(postgres_place.rows(ORDERS)) == [(1, "a", 1), (2, "b", 2)]
    postgres_lake.shutdown()


def test_a_connection_that_is_lost_is_told_without_a_password(
    postgres_place: PostgresPlace, postgres_lake: PostgresDestination, spark: SparkSession
) -> None:
    fill(postgres_lake, spark, ORDERS)
    with psycopg.connect(postgres_place.dsn, autocommit=True) as admin:
        admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'penstock apply'"
        )

    with pytest.raises(DestinationAway):
        postgres_lake.save_progress(a_progress(60, ORDERS))

    away = PostgresDestination(LAKE, {"dsn": "postgresql://somebody:hunter2@127.0.0.1:1/lake"})
    with pytest.raises(DestinationAway) as caught:
        away.startup()
    assert "hunter2" not in str(caught.value)


def test_a_role_that_may_not_keep_the_progress_is_told_what_it_needs(postgres_place: PostgresPlace) -> None:
    role = f"reader_{secrets.token_hex(4)}"
    with psycopg.connect(postgres_place.dsn) as admin:
        admin.execute(sql.SQL("create role {} login password {}").format(sql.Identifier(role), sql.Literal(role)))

    with pytest.raises(DestinationError, match="permission denied for database") as caught:
        PostgresDestination(LAKE, {"dsn": make_conninfo(postgres_place.dsn, user=role, password=role)}).startup()

    assert "grant connect, create, temporary on database" in caught.value.solution
