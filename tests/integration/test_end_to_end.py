"""Postgres, broker, Spark and DuckDB, for real: whatever is done to the source stands at the destination afterwards.

The tests share one running pipeline; each brings a table of its own, which capture notices, copies and streams.
"""

from __future__ import annotations

import secrets
import time

import pytest

from tests.conftest import MakePipeline
from tests.support.builders import a_name
from tests.support.eventually import eventually
from tests.support.meanwhile import meanwhile, writes_of_every_kind
from tests.support.pipeline import Pipeline


@pytest.fixture(scope="module")
def running(make_shared_pipeline: MakePipeline) -> Pipeline:
    pipeline = make_shared_pipeline()
    pipeline.publish()
    pipeline.start()
    return pipeline


def test_a_copy_under_concurrent_writes_is_exact(running: Pipeline) -> None:
    table, bag = a_name(), a_name()
    running.sql(
        f"create table {bag} (step int)",
        f"create table {table} (id int primary key, payload text, n int)",
        f"insert into {table} select i, repeat(md5(i::text), 3), 0 from generate_series(1, 20000) i",
    )

    with meanwhile(writes_of_every_kind(running, table, bag)):
        eventually(lambda: running.known_phase(table) == "Ready", what="the table to be ready")

    running.assert_equal(table, bag)


def test_insert_update_delete_truncate_and_key_change_arrive(running: Pipeline) -> None:
    table = a_name()
    running.sql(
        f"create table {table} (id int primary key, a text, b numeric(12, 2))",
        f"insert into {table} select i, 'row ' || i, i / 4.0 from generate_series(1, 100) i",
    )
    running.assert_equal(table)

    running.sql(
        f"insert into {table} values (101, 'inserted', 1.25)",
        f"update {table} set a = 'updated' where id <= 10",
        f"delete from {table} where id between 20 and 29",
        f"update {table} set id = id + 1000 where id between 30 and 39",
    )
    running.assert_equal(table)

    running.sql(f"truncate {table}", f"insert into {table} values (1, 'after the truncate', null)")
    running.assert_equal(table)


def test_toasted_columns_that_an_update_does_not_touch_keep_their_value(running: Pipeline) -> None:
    table = a_name()
    running.sql(
        f"create table {table} (id int primary key, n int, t text, j jsonb, b bytea)",
        f"""insert into {table}
            select i, 0, string_agg(md5(random()::text), ''),
                   jsonb_build_object('k', string_agg(md5(random()::text), '')),
                   decode(string_agg(md5(random()::text), ''), 'hex')
              from generate_series(1, 20) i, generate_series(1, 400) g group by i""",
    )
    running.assert_equal(table)

    running.sql(f"update {table} set n = 1 where id <= 5")
    running.sql(
        f"update {table} set id = id + 100 where id between 3 and 8", f"update {table} set n = 2 where id > 100"
    )
    running.sql(
        f"update {table} set id = id + 100 where id > 100",
        f"insert into {table} select id - 200, 9, 'short', '{{}}', '' from {table} where id > 200",
        f"update {table} set t = 'new ' || t where id = 10",
        f"update {table} set n = 3 where id = 10",
    )

    running.assert_equal(table)
    assert running.lake(f"select min(octet_length(b)) from public.{table} where id > 200") == [(6400,)]


def test_nulls_and_empty_strings_stay_apart(running: Pipeline) -> None:
    table = a_name()
    running.sql(
        f"create table {table} (id int primary key, a text, b bytea, c text[])",
        f"insert into {table} values (1, null, null, null), (2, '', '', '{{}}')",
        f"insert into {table} values (3, 'NULL', '\\x00', '{{NULL,\"NULL\",\"\"}}')",
    )
    running.assert_equal(table)

    running.sql(
        f"insert into {table} select id + 10, a, b, c from {table}",
        f"update {table} set a = case when a is null then '' else null end where id < 10",
    )

    running.assert_equal(table)
    assert running.lake(f"select a, b, c from public.{table} where id in (11, 12) order by id") == [
        (None, None, None),
        ("", b"", []),
    ]


def test_a_value_of_ten_megabytes_arrives_by_copy_and_by_stream(running: Pipeline) -> None:
    table = a_name()
    running.sql(
        f"create table {table} (id int primary key, t text)",
        f"insert into {table} values (1, repeat('copied ', 1500000))",
    )
    running.assert_equal(table)

    running.sql(
        f"insert into {table} values (2, repeat('streamed', 1300000))", f"update {table} set id = 3 where id = 1"
    )

    running.assert_equal(table)
    assert running.lake(f"select id, length(t) from public.{table} order by id") == [(2, 10_400_000), (3, 10_500_000)]


def test_a_hundred_thousand_rows_in_one_transaction_arrive(running: Pipeline) -> None:
    table = a_name()
    running.sql(f"create table {table} (id int primary key, a text)")
    running.assert_equal(table)

    running.sql(f"insert into {table} select i, 'row ' || i from generate_series(1, 100000) i")

    running.assert_equal(table)
    assert running.capture_peak_bytes() < 300 * 1024**2


def test_a_table_without_rows_is_there_and_empty(running: Pipeline) -> None:
    table = a_name()

    running.sql(f"create table {table} (id int primary key, a text)")

    running.assert_equal(table)
    assert running.lake(f"select count(*) from public.{table}") == [(0,)]


def test_a_composite_key_identifies_rows(running: Pipeline) -> None:
    table = a_name()
    running.sql(
        f"create table {table} (region text, number int, note text, primary key (number, region))",
        f"insert into {table} select r, i, r || i from unnest(array['a', 'b', '']) r, generate_series(1, 50) i",
    )
    running.assert_equal(table)

    running.sql(
        f"update {table} set note = 'x' where region = 'a' and number < 10",
        f"update {table} set region = 'c' where region = 'b' and number < 10",
        f"delete from {table} where region = '' and number < 10",
    )

    running.assert_equal(table)


def test_names_with_capitals_spaces_quotes_and_dots_are_kept(running: Pipeline) -> None:
    name = f'Order "{secrets.token_hex(2)}" a.b'
    quoted = '"' + name.replace('"', '""') + '"'
    running.sql(
        f'create table {quoted} ("Id" int primary key, "some column" text, "row" text, "select ""x""" text, "c.d" int)',
        f"insert into {quoted} select i, 'a', 'b', 'c', i from generate_series(1, 10) i",
    )
    running.assert_equal(name)

    running.sql(
        f"""update {quoted} set "some column" = 'changed' where "Id" < 4""",
        f"""update {quoted} set "Id" = 100 where "Id" = 9""",
        f"""delete from {quoted} where "Id" = 5""",
    )

    running.assert_equal(name)


def test_rows_of_a_table_without_a_key_are_counted_not_merged(running: Pipeline) -> None:
    table = a_name()
    running.sql(
        f"create table {table} (a int, b text)",
        f"insert into {table} select i % 3, null from generate_series(1, 30) i",
    )
    running.assert_equal(table)

    running.sql(f"insert into {table} select i % 3, null from generate_series(1, 30) i")

    running.assert_equal(table)
    assert running.lake(f"select count(*) from public.{table}") == [(60,)]


def test_identity_full_without_a_key_deletes_and_updates_single_copies(running: Pipeline) -> None:
    table = a_name()
    running.sql(
        f"create table {table} (a int, b text)",
        f"alter table {table} replica identity full",
        f"insert into {table} select i % 3, null from generate_series(1, 30) i",
    )
    running.assert_equal(table)

    running.sql(
        f"delete from {table} where ctid in (select ctid from {table} where a = 1 limit 3)",
        f"update {table} set b = 'x' where ctid in (select ctid from {table} where a = 2 limit 2)",
    )

    running.assert_equal(table)
    assert running.lake(f"select a, b, count(*) from public.{table} group by all order by all") == [
        (0, None, 10),
        (1, None, 7),
        (2, "x", 2),
        (2, None, 8),
    ]


def test_a_transfer_between_three_tables_is_never_seen_in_halves(running: Pipeline) -> None:
    tables = [a_name() for _ in range(3)]
    for table in tables:
        running.sql(
            f"create table {table} (id int primary key, amount int)",
            f"insert into {table} select i, 1000 from generate_series(1, 10) i",
        )
    running.assert_equal(*tables)
    total = "select " + " + ".join(f"(select sum(amount) from public.{table})" for table in tables)

    def transfer(step: int) -> None:
        with running.source.transaction():
            for index, table in enumerate(tables):
                change = (2 * step, -step, -step)[index]
                running.sql(f"update {table} set amount = amount + {change} where id = {step % 10 + 1}")

    seen: set[object] = set()
    moments: set[object] = set()
    with meanwhile(transfer, pause=0.01):
        while len(moments) < 5:
            (both,) = running.lake(f"{total}, (select sum(amount) from public.{tables[0]})")
            seen.add(both[0])
            moments.add(both[1])
            time.sleep(0.1)  # a reader that never lets go of the file would lock its writer out

    assert seen == {30_000}
    running.assert_equal(*tables)


def test_a_table_that_changes_its_shape_is_equal(running: Pipeline) -> None:
    table = a_name()
    running.sql(f"create table {table} (id int primary key, a text)", f"insert into {table} values (1, 'x'), (2, 'y')")
    running.assert_equal(table)

    running.sql(
        f"insert into {table} values (3, 'before')",
        f"alter table {table} add column b int default 7",
        f"insert into {table} values (4, 'after', 8)",
    )

    eventually(
        lambda: ("b",) in running.lake(f"select column_name from (describe public.{table})"), what="the new column"
    )
    running.assert_equal(table)


def test_the_slot_reaches_the_last_commit_and_keeps_moving_for_unpublished_tables(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline()
    pipeline.sql("create table published (id int primary key)", "create table hidden (id int)")
    pipeline.publish("published")
    pipeline.start()
    pipeline.assert_equal("published")

    pipeline.sql("insert into published select generate_series(1, 1000)")
    last_commit = pipeline.wal_lsn()
    eventually(lambda: pipeline.confirmed_lsn() >= last_commit, seconds=15, what="the slot to reach the last commit")

    pipeline.sql("insert into hidden select generate_series(1, 1000)")
    unpublished = pipeline.wal_lsn()
    eventually(lambda: pipeline.confirmed_lsn() >= unpublished, seconds=15, what="the slot to pass unpublished WAL")
    pipeline.assert_equal("published")
