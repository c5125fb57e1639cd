"""DDL of every kind, with event triggers at the source and without: the mirror follows, and equals the source."""

from __future__ import annotations

from pathlib import Path

import pytest

from capture.setup_source import Setup, set_up
from schemas.identifiers import TableName
from stores.sqlite import SqliteStore
from tests.conftest import MakePipeline
from tests.support.altered import columns, copies, mirrored_tables
from tests.support.builders import a_name
from tests.support.captured import MakeCaptured, next_generation
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline


@pytest.fixture(scope="module")
def running(make_shared_pipeline: MakePipeline) -> Pipeline:
    pipeline = make_shared_pipeline()
    set_up(pipeline.source, Setup.INSTALL)
    pipeline.sql(f'create publication "{pipeline.name}" for all tables with (publish_via_partition_root)')
    pipeline.start()
    return pipeline


def test_a_rewrite_and_another_key_are_noticed_without_a_change_of_the_table_and_copied_again(
    running: Pipeline,
) -> None:
    statements = [
        "alter table {} alter column a type text using upper(a)",
        "alter table {} add column c float8 default random()",
        "alter table {} alter column n type bigint",
        "alter table {} alter column n type text using 'n' || n",
        "alter table {} drop column a, add column c timestamptz default clock_timestamp()",
        "alter table {} drop column n, add column n int",
        "alter table {} drop constraint {}_pkey, add primary key (n)",
    ]
    tables = mirrored_tables(running, len(statements))

    for table, statement in zip(tables, statements, strict=True):
        running.sql(statement.format(table, table))

    running.assert_equal(*tables)
    assert [copies(running, table) for table in tables] == [2] * len(tables)


FOLLOWED = {
    "alter table {} add column c int": ["id", "a", "n", "c"],
    "alter table {} add column c int default 7": ["id", "a", "n", "c"],
    "alter table {} add column c text not null default 'it''s \"x\"', add column d date default '2000-01-31'": [
        *("id", "a", "n", "c", "d")
    ],
    "alter table {} drop column a": ["id", "n"],
    "alter table {} rename column a to b": ["id", "b", "n"],
    "alter table {} rename column id to number": ["number", "a", "n"],
    "alter table {} drop column a, add column a text default 'anew'": ["id", "n", "a"],
    "alter table {} alter column v type varchar(20)": ["id", "a", "n", "v"],
    "alter table {} add column c int[] default '{{1,2}}', add column e bytea default '\\x00ff'": [
        *("id", "a", "n", "c", "e")
    ],
}


def test_what_touches_no_row_is_followed_without_a_copy_and_without_a_change_of_the_table(running: Pipeline) -> None:
    tables = mirrored_tables(running, len(FOLLOWED))
    running.sql(f"alter table {tables[7]} add column v varchar(10) default 'short'")

    for table, statement in zip(tables, FOLLOWED, strict=True):
        running.sql(statement.format(table))

    running.assert_equal(*tables)
    assert [columns(running, table) for table in tables] == list(FOLLOWED.values())
    running.sql(*(f"insert into {table} values (100)" for table in tables if table != tables[2]))
    running.assert_equal(*tables)
    assert [copies(running, table) for table in tables] == [1] * len(tables)


def test_columns_that_exchange_their_names_keep_their_values(running: Pipeline) -> None:
    (table,) = mirrored_tables(running, 1)
    running.sql(f"alter table {table} add column b text default 'b'")
    running.assert_equal(table)

    with running.source.transaction():
        running.sql(
            f"update {table} set a = 'updated before' where id < 5",
            f"alter table {table} rename column a to passing",
            f"alter table {table} rename column b to a",
            f"alter table {table} rename column passing to b",
            f"insert into {table} values (100, 'was a', 1, 'was b')",
        )
    running.sql(f"update {table} set b = 'after' where id = 10")

    running.assert_equal(table)
    assert columns(running, table) == ["id", "b", "n", "a"]
    assert copies(running, table) == 1


def test_a_followed_change_in_one_transaction_with_changes_before_and_after_is_exact(running: Pipeline) -> None:
    table = a_name()
    running.sql(
        f"create table {table} (id int primary key, a text, big text, n int)",
        f"alter table {table} alter column big set storage external",
        f"insert into {table} select i, 'row ' || i, repeat(i::text, 4000), i from generate_series(1, 20) i",
    )
    running.assert_equal(table)

    with running.source.transaction():
        running.sql(
            f"insert into {table} values (101, 'before', 'b', 1)",
            f"update {table} set a = 'updated before' where id <= 10",
            f"delete from {table} where id in (2, 3)",
            f"alter table {table} add column c int default 7",
            f"alter table {table} drop column n",
            f"alter table {table} rename column big to large",
            f"update {table} set a = 'updated after', c = 8 where id in (1, 4, 101)",
            f"update {table} set id = 200 where id = 5",
            f"insert into {table} values (102, 'after', 'l', 9)",
            f"delete from {table} where id = 6",
        )
    running.sql(f"update {table} set c = c + 1 where id < 15")

    running.assert_equal(table)
    assert columns(running, table) == ["id", "a", "large", "c"]
    assert copies(running, table) == 1


def test_rows_without_a_key_and_of_identity_full_are_followed(running: Pipeline) -> None:
    table = a_name()
    running.sql(f"create table {table} (a text, n int)", f"alter table {table} replica identity full")
    running.sql(f"insert into {table} select 'x', i % 2 from generate_series(1, 10) i")
    running.assert_equal(table)

    with running.source.transaction():
        running.sql(
            f"delete from {table} where ctid = (select min(ctid) from {table})",
            f"alter table {table} drop column n, add column c int default 7",
            f"delete from {table} where ctid = (select min(ctid) from {table})",
            f"update {table} set a = 'y' where ctid = (select max(ctid) from {table})",
        )

    running.assert_equal(table)
    assert copies(running, table) == 1


def test_a_new_destination_and_one_that_was_away_meet_the_change_at_its_place(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline()
    pipeline.sql(
        "create table t (id int primary key, a text, n int)",
        "insert into t select i, 'row ' || i, i from generate_series(1, 100) i",
    )
    set_up(pipeline.source, Setup.INSTALL)
    pipeline.publish()
    pipeline.start_capture()
    pipeline.assert_captured()

    def change(number: int) -> None:
        pipeline.sql(
            f"update t set n = {number} where id <= 10",
            f"alter table t add column c{number} int default {number}",
            f"update t set c{number} = 0 where id <= 5",
            "delete from t where id = (select max(id) from t)",
        )

    for number in (1, 2):
        change(number)
        done = pipeline.wal_lsn()
        eventually(lambda done=done: pipeline.checkpoint_lsn() >= done, what="capture, before the catalog is ahead")
    pipeline.sql("alter table t drop column a")
    pipeline.start_apply()
    pipeline.assert_equal("t")
    pipeline.stop_apply()
    pipeline.stop_capture()
    change(3)
    pipeline.start()

    pipeline.assert_equal("t")
    assert columns(pipeline, "t") == ["id", "n", "c1", "c2", "c3"]
    assert copies(pipeline, "t") == 1


def test_many_changes_at_once_with_rows_between_them_are_exact_with_a_copy_or_without(running: Pipeline) -> None:
    (table,) = mirrored_tables(running, 1)

    for number in range(6):
        running.sql(
            f"update {table} set n = {number} where id <= 10",
            f"alter table {table} drop column a",
            f"alter table {table} add column a text default 'default {number}'",
            f"update {table} set a = 'set {number}' where id % 6 = {number}",
            f"insert into {table} (id) values ({100 + number})",
        )

    running.assert_equal(table)


def test_a_column_that_comes_during_a_copy_costs_none_and_one_that_is_renamed_makes_the_next(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline()
    pipeline.sql(
        "create table t (id int primary key, a text, b text)",
        "insert into t select i, repeat(md5(i::text), 4), 'b' || i from generate_series(1, 30000) i",
    )
    set_up(pipeline.source, Setup.INSTALL)
    pipeline.publish()
    pipeline.start_capture(PENSTOCK_KERNEL="reference", PENSTOCK_CAPTURE__COPY_RANGE_SIZE="64KiB")
    pipeline.start_apply()
    eventually(lambda: pipeline.copied_records("t") > 500, what="a part of the copy")

    pipeline.sql("alter table t add column c int default 7", "update t set c = 8 where id % 3 = 0")
    eventually(lambda: pipeline.copied_records("t") > 10_000, what="a larger part of the copy")
    before = copies(pipeline, "t")
    with pipeline.source.transaction():
        pipeline.sql(
            "alter table t rename column a to passing",
            "alter table t rename column b to a",
            "alter table t rename column passing to b",
        )
    assert pipeline.copied_records("t") < 30_000, "it came too late to be in the middle"

    pipeline.assert_equal("t")
    assert before == 1
    assert copies(pipeline, "t") == 2


def test_a_rewrite_in_one_transaction_with_changes_before_and_after_is_exact(running: Pipeline) -> None:
    (table,) = mirrored_tables(running, 1)

    with running.source.transaction():
        running.sql(
            f"insert into {table} values (101, 'before', 1)",
            f"update {table} set a = 'updated before' where id = 1",
            f"alter table {table} alter column a type text using upper(a)",
            f"insert into {table} values (102, 'between', 2)",
            f"alter table {table} add column c int default 7",
            f"update {table} set a = 'after', c = 8 where id <= 2",
            f"delete from {table} where id = 3",
        )
    running.sql(f"insert into {table} values (103, 'later', 3, 9)")

    running.assert_equal(table)
    assert columns(running, table) == ["id", "a", "n", "c"]


def test_what_changes_neither_values_nor_shape_costs_no_copy(running: Pipeline) -> None:
    statements = [
        "vacuum full {}",
        "cluster {} using {}_pkey",
        "alter table {} set (fillfactor = 50)",
        "alter table {} alter column a set statistics 10",
        "alter table {} alter column a set default 'x'",
        "alter table {} alter column a set not null",
    ]
    tables = mirrored_tables(running, len(statements))

    for table, statement in zip(tables, statements, strict=True):
        running.sql(statement.format(table, table), f"insert into {table} values (100, 'after', 1)")

    running.assert_equal(*tables)
    assert [copies(running, table) for table in tables] == [1] * len(tables)


def test_a_column_that_was_there_and_becomes_published_is_copied_and_a_partitioned_table_with_a_new_one_too(
    running: Pipeline,
) -> None:
    generated, parted = a_name(), a_name()
    with running.source.transaction():
        running.sql(
            f"create table {generated} (id int primary key, g int generated always as (id * 2) stored)",
            f"insert into {generated} values (1), (2)",
            f"create table {parted} (id int primary key) partition by range (id)",
            f"create table {parted}_a partition of {parted} for values from (0) to (100)",
            f"insert into {parted} values (1), (2)",
        )
    running.settle(generated, parted)

    running.sql(f"alter table {generated} alter column g drop expression")
    running.sql(f"alter table {parted} add column c int default 7")

    running.assert_equal(generated, parted)
    assert [copies(running, table) for table in (generated, parted)] == [2, 2]


def test_a_rewritten_partition_is_copied_with_its_root(running: Pipeline) -> None:
    table = a_name()
    with running.source.transaction():
        running.sql(
            f"create table {table} (id int primary key, a text) partition by range (id)",
            f"create table {table}_a partition of {table} for values from (0) to (100)",
            f"insert into {table} values (1, 'x')",
        )
    running.assert_equal(table)

    running.sql(f"alter table {table} alter column a type text using upper(a)")

    running.assert_equal(table)
    assert running.lake(f"select a from public.{table}") == [("X",)]


def test_messages_that_the_triggers_did_not_write_stop_nothing(running: Pipeline) -> None:
    (table,) = mirrored_tables(running, 1)

    for content in ("", "{", "[]", '{"schema": "public", "name": "nobody", "rewritten": true, "dropped": []}'):
        running.source.execute("select pg_logical_emit_message(true, 'penstock.ddl', %s)", [content])
        running.source.execute("select pg_logical_emit_message(false, 'penstock.ddl', %s)", [content])
    running.sql(f"insert into {table} values (100, 'after', 1)")

    running.assert_equal(table)
    assert copies(running, table) == 1


def test_a_rewrite_while_capture_is_away_and_one_during_a_copy_are_noticed(captured: MakeCaptured) -> None:
    pipeline, log = captured(
        "create table t (id int primary key, a text)",
        "insert into t select i, repeat(md5(i::text), 4) from generate_series(1, 20000) i",
        publish="for table t",
        PENSTOCK_KERNEL="reference",
        PENSTOCK_CAPTURE__COPY_RANGE_SIZE="64KiB",
    )
    set_up(pipeline.source, Setup.INSTALL)
    eventually(lambda: pipeline.copied_records("t") > 100, what="a part of the copy")
    pipeline.sql("alter table t alter column a type text using 'new'")
    assert pipeline.copied_records("t") < 20_000, "it came too late to be in the middle"
    log.assert_rows("t")

    pipeline.stop_capture()
    before = len(log.generations("t"))
    pipeline.sql("update t set a = 'x' where id < 10", "alter table t alter column a type text using a || '!'")
    pipeline.start_capture()

    next_generation(log, "t", before)
    log.assert_rows("t")


def test_every_shape_of_a_table_is_a_version_by_its_lsn(captured: MakeCaptured) -> None:
    pipeline, log = captured("create table t (id int primary key)", publish="for table t")
    log.assert_rows("t")
    before = pipeline.wal_lsn()
    pipeline.sql("insert into t values (1)", "alter table t add column a int", "insert into t values (2, 2)")
    log.assert_reached()
    pipeline.stop_capture()
    pipeline.start_capture()
    between = pipeline.wal_lsn()
    pipeline.sql("insert into t values (3, 3)")
    log.assert_reached()
    pipeline.stop_capture()

    table = TableName("public", "t")
    with SqliteStore(Path(pipeline.config().capture_config().state_path)) as store:
        first, last = store.at(table, before), store.latest(table)

    assert first is not None
    assert last is not None
    assert [column.name for column in first.schema.columns] == ["id"]
    assert [column.name for column in last.schema.columns] == ["id", "a"]
    assert before < last.since < between
    assert len(log.generations("t")) == 1
