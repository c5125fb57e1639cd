"""DDL of every kind, with event triggers at the source and without: the mirror follows, and equals the source."""

from __future__ import annotations

from pathlib import Path

import pytest

from capture.setup_source import Setup, set_up
from schemas.identifiers import TableName
from stores.sqlite import SqliteStore
from tests.conftest import MakePipeline
from tests.support.builders import a_name
from tests.support.captured import Captured, MakeCaptured, next_generation
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline


@pytest.fixture(scope="module")
def running(make_shared_pipeline: MakePipeline) -> Pipeline:
    pipeline = make_shared_pipeline()
    set_up(pipeline.source, Setup.INSTALL)
    pipeline.sql(f'create publication "{pipeline.name}" for all tables with (publish_via_partition_root)')
    pipeline.start()
    return pipeline


def mirrored_tables(pipeline: Pipeline, count: int) -> list[str]:
    tables = [a_name() for _ in range(count)]
    with pipeline.source.transaction():
        for table in tables:
            pipeline.sql(
                f"create table {table} (id int primary key, a text, n int)",
                f"insert into {table} select i, 'row ' || i, i from generate_series(1, 20) i",
            )
    pipeline.assert_equal(*tables)
    return tables


def copies(pipeline: Pipeline, table: str) -> int:
    return len(Captured(pipeline).generations(table))


def columns(pipeline: Pipeline, table: str) -> list[str]:
    """Of the mirror."""
    return [name for (name,) in pipeline.lake(f"select column_name from (describe public.{table})")]


def test_a_rewrite_and_a_new_shape_are_noticed_without_a_change_of_the_table_and_copied_again(
    running: Pipeline,
) -> None:
    statements = [
        "alter table {} alter column a type text using upper(a)",
        "alter table {} add column c float8 default random()",
        "alter table {} alter column n type bigint",
        "alter table {} alter column n type text using 'n' || n",
        "alter table {} drop column a, add column a text",
        "alter table {} drop constraint {}_pkey, add primary key (n)",
        "alter table {} add column c int default 7",
        "alter table {} rename column a to b",
    ]
    tables = mirrored_tables(running, len(statements))

    for table, statement in zip(tables, statements, strict=True):
        running.sql(statement.format(table, table))

    running.assert_equal(*tables)
    assert [copies(running, table) for table in tables] == [2] * len(tables)


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


def test_without_the_triggers_a_new_shape_is_noticed_at_the_next_change(captured: MakeCaptured) -> None:
    expected = {
        "alter table {} add column c int": ["id", "a", "c"],
        "alter table {} add column c int default 7": ["id", "a", "c"],
        "alter table {} drop column a": ["id"],
        "alter table {} rename column a to b": ["id", "b"],
        "alter table {} alter column a type varchar(100)": ["id", "a"],
    }
    tables = {f"t{number}": statement for number, statement in enumerate(expected)}
    pipeline, log = captured(
        *(f"create table {table} (id int primary key, a text)" for table in tables),
        *(f"insert into {table} values (1, 'x')" for table in tables),
        publish="for all tables",
    )
    for table in tables:
        log.assert_rows(table)

    for table, statement in tables.items():
        pipeline.sql(statement.format(table), f"insert into {table} (id) values (2)")

    for table, statement in tables.items():
        next_generation(log, table, 1)
        log.assert_rows(table)
        assert log.columns(table) == expected[statement]


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
    pipeline.sql("alter table t drop column a, add column a text default 'new'")
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
    next_generation(log, "t", 1)
    log.assert_rows("t")
    pipeline.stop_capture()
    pipeline.start_capture()
    pipeline.sql("insert into t values (3, 3)")
    log.assert_rows("t")
    pipeline.stop_capture()

    table = TableName("public", "t")
    with SqliteStore(Path(pipeline.config().capture_config().state_path)) as store:
        first, last = store.at(table, before), store.latest(table)

    assert first is not None
    assert last is not None
    assert [column.name for column in first.schema.columns] == ["id"]
    assert [column.name for column in last.schema.columns] == ["id", "a"]
    assert before < last.since < log.generations("t")[-1]
