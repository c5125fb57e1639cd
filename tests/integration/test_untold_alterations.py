"""Alterations that no event trigger tells of: a RELATION message and the catalog agree, and the mirror follows, or it
is copied again. In both cases it equals the source."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import LiteralString

import psycopg
import pytest
from pyspark.sql import SparkSession

from capture.setup_source import Setup, set_up
from console.local_stack.spark import spark_runtime
from schemas.failpoints import VARIABLE
from tests.conftest import MakePipeline
from tests.support.altered import columns, copies, mirrored_tables
from tests.support.applying import apply_to_a_crash
from tests.support.eventually import eventually
from tests.support.pipeline import LAKE, Pipeline

FOLLOWED = {
    "alter table {} add column c int": ["id", "a", "n", "c"],
    "alter table {} add column c int not null default 7, add column d timestamptz default '2000-01-31 12:00+02'": [
        *("id", "a", "n", "c", "d")
    ],
    "alter table {} add column c int[] default '{{1,NULL}}', add column e bytea default '\\x00ff'": [
        *("id", "a", "n", "c", "e")
    ],
    "alter table {} drop column a": ["id", "n"],
    "alter table {} drop column a, drop column n": ["id"],
    "alter table {} rename column a to b": ["id", "b", "n"],
    "alter table {} rename column id to number": ["number", "a", "n"],
    "alter table {} alter column a set default 'x', alter column n set not null": ["id", "a", "n"],
}
COPIED = [
    "alter table {} drop column n, add column n int",
    "alter table {} drop column a, add column b text default 'x'",
    "alter table {} add column c float8 default random()",
    "alter table {} alter column n type bigint",
    "alter table {} replica identity full",
]


@pytest.fixture(scope="module")
def running(make_shared_pipeline: MakePipeline) -> Pipeline:
    pipeline = make_shared_pipeline()
    pipeline.sql(f'create publication "{pipeline.name}" for all tables with (publish_via_partition_root)')
    pipeline.start()
    return pipeline


def touch(pipeline: Pipeline, *tables: str) -> None:
    """A change of each table, for that is when Postgres tells of its shape."""
    pipeline.sql(*(f"delete from {table} where ctid = (select max(ctid) from {table})" for table in tables))


def test_what_touches_no_row_is_followed_at_the_next_change(running: Pipeline) -> None:
    tables = mirrored_tables(running, len(FOLLOWED))

    for table, statement in zip(tables, FOLLOWED, strict=True):
        running.sql(statement.format(table))
    touch(running, *tables)

    running.assert_equal(*tables)
    assert [columns(running, table) for table in tables] == list(FOLLOWED.values())
    assert [copies(running, table) for table in tables] == [1] * len(tables)


def test_what_leaves_a_doubt_is_copied_again_at_the_next_change(running: Pipeline) -> None:
    tables = mirrored_tables(running, len(COPIED))

    for table, statement in zip(tables, COPIED, strict=True):
        running.sql(statement.format(table))
    touch(running, *tables)

    eventually(lambda: all(copies(running, table) == 2 for table in tables), what="the copies")
    running.assert_equal(*tables)


def test_alterations_in_one_transaction_with_changes_before_and_after_are_exact(running: Pipeline) -> None:
    added, exchanged, both = mirrored_tables(running, 3)

    with running.source.transaction():
        running.sql(
            f"insert into {added} values (101, 'before', 1)",
            f"update {added} set a = 'updated before' where id <= 10",
            f"delete from {added} where id in (2, 3)",
            f"alter table {added} add column c int default 7",
            f"alter table {added} rename column a to b",
            f"update {added} set b = 'updated after', c = 8 where id in (1, 4, 101)",
            f"update {added} set id = 200 where id = 5",
            f"delete from {added} where id = 6",
            f"alter table {exchanged} add column b text default 'b'",
            f"update {exchanged} set a = 'updated before' where id < 5",
        )
    running.assert_equal(added, exchanged)
    with running.source.transaction():
        running.sql(
            f"update {exchanged} set a = 'updated again' where id < 3",
            f"alter table {exchanged} rename column a to passing",
            f"alter table {exchanged} rename column b to a",
            f"alter table {exchanged} rename column passing to b",
            f"insert into {exchanged} values (100, 'was a', 1, 'was b')",
            f"insert into {both} values (100, 'before', 1)",
            f"alter table {both} add column c int default 7",
            f"insert into {both} values (101, 'between', 1, 2)",
            f"alter table {both} add column d int default 8",
            f"insert into {both} values (102, 'after', 1, 2, 3)",
        )
    running.sql(f"update {exchanged} set b = 'after' where id = 10")

    running.assert_equal(added, exchanged, both)
    assert [columns(running, table) for table in (added, exchanged)] == [["id", "b", "n", "c"], ["id", "b", "n", "a"]]
    assert [copies(running, table) for table in (added, exchanged, both)] == [1, 1, 2]


def test_after_truncate_and_vacuum_full_a_new_column_costs_a_copy_since_the_catalog_may_have_forgotten_its_default(
    running: Pipeline,
) -> None:
    truncated, rewritten = mirrored_tables(running, 2)

    running.sql(f"truncate {truncated}", f"insert into {truncated} values (1, 'x', 1)")
    running.sql(f"alter table {rewritten} add column c int default 7")
    running.source.execute(f"vacuum full {rewritten}")
    running.sql(f"alter table {truncated} add column c int default 7")
    touch(running, rewritten)
    running.sql(f"insert into {truncated} values (2)")

    running.assert_equal(truncated, rewritten)
    assert [copies(running, table) for table in (truncated, rewritten)] == [2, 2]


def test_a_rewrite_that_capture_has_looked_at_is_noticed_after_its_restart(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline()
    pipeline.sql("create table t (id int primary key)", "insert into t values (1), (2)")
    pipeline.publish("t")
    pipeline.start()
    pipeline.assert_equal("t")

    pipeline.sql("alter table t add column c float8 default random()", "create table later (id int primary key)")
    pipeline.sql(f'alter publication "{pipeline.name}" add table later')
    eventually(lambda: copies(pipeline, "later") == 1, what="a look at the publication")
    pipeline.stop_capture()
    pipeline.start_capture()
    pipeline.sql("insert into t values (3)")

    pipeline.assert_equal("t", "later")
    assert copies(pipeline, "t") == 2


def test_an_alteration_that_is_streamed_before_others_can_see_it_is_waited_for(make_pipeline: MakePipeline) -> None:
    """As with a synchronous standby that is slow: the commit is in the WAL, and nobody sees it yet."""
    pipeline = make_pipeline()
    pipeline.sql("create table t (id int primary key)", "insert into t values (1), (2)")
    set_up(pipeline.source, Setup.INSTALL)
    pipeline.publish()
    pipeline.start()
    pipeline.assert_equal("t")
    dsn = pipeline.config().capture_config().source.dsn.get_secret_value()
    alter = threading.Thread(target=_run, args=(dsn, "alter table t add column c int default 7"))

    try:
        pipeline.sql("alter system set synchronous_standby_names = 'nobody'", "select pg_reload_conf()")
        eventually(lambda: _is_set(pipeline), what="the setting")
        alter.start()
        eventually(lambda: _waits(pipeline), what="capture waiting for the transaction")
        assert not _sees_column(pipeline)
    finally:
        pipeline.sql("alter system reset synchronous_standby_names", "select pg_reload_conf()")
    alter.join()

    pipeline.assert_equal("t")
    assert columns(pipeline, "t") == ["id", "c"]
    assert copies(pipeline, "t") == 1


def _run(dsn: str, statement: LiteralString) -> None:
    with psycopg.connect(dsn, autocommit=True) as session:
        session.execute(statement)


def _is_set(pipeline: Pipeline) -> bool:
    row = pipeline.source.execute("select current_setting('synchronous_standby_names')").fetchone()
    return row is not None and row[0] == "nobody"


def _waits(pipeline: Pipeline) -> bool:
    """Capture asks for the lock again and again."""
    asks = "select 1 from pg_stat_activity where query like 'select 1 from pg_locks%%' and query_start > now() - %s"
    asked = pipeline.source.execute(asks, [timedelta(seconds=0.5)]).fetchone()
    committing = pipeline.source.execute("select 1 from pg_stat_activity where wait_event = 'SyncRep'").fetchone()
    return asked is not None and committing is not None


def _sees_column(pipeline: Pipeline) -> bool:
    found = pipeline.source.execute("select 1 from pg_attribute where attrelid = 't'::regclass and attname = 'c'")
    return found.fetchone() is not None


@pytest.mark.parametrize("setup", [Setup.INSTALL, Setup.REMOVE])
def test_alterations_survive_kills_of_capture_and_apply_without_a_copy(
    make_pipeline: MakePipeline, setup: Setup, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make_pipeline()
    pipeline.sql(
        "create table t (id int primary key, a text, n int)",
        "insert into t select i, 'row ' || i, i from generate_series(1, 100) i",
    )
    set_up(pipeline.source, setup)
    pipeline.publish()
    pipeline.start_capture()
    pipeline.start_apply()
    pipeline.assert_equal("t")
    pipeline.stop_apply()

    def killed() -> None:
        pipeline.start_apply_process(**{VARIABLE: "apply.committed=kill"})
        pipeline.wait_for_death_of_apply()

    def crashed() -> None:  # without a process, which takes seconds to start
        config = pipeline.config().apply_config(LAKE, spark_runtime())
        apply_to_a_crash(config, spark, "apply.committed", monkeypatch)

    def captured() -> None:
        done = pipeline.wal_lsn()
        eventually(lambda: pipeline.checkpoint_lsn() >= done, what="capture, before the catalog is ahead")

    for number, end_of_apply in enumerate((killed, crashed)):
        with pipeline.source.transaction():
            pipeline.sql(
                f"update t set n = {number} where id <= 10",
                f"alter table t add column c{number} int default {number}",
                f"update t set c{number} = -1 where id <= 5",
            )
        pipeline.kill_capture()
        pipeline.start_capture()
        captured()
        end_of_apply()
        pipeline.sql(
            f"alter table t rename column c{number} to d{number}", f"insert into t (id) values ({200 + number})"
        )
        captured()
        pipeline.kill_capture()
        pipeline.start_capture()
    pipeline.sql("alter table t drop column a", "delete from t where id = 50")
    pipeline.start_apply()

    pipeline.assert_equal("t")
    assert columns(pipeline, "t") == ["id", "n", "d0", "d1"]
    assert copies(pipeline, "t") == 1
