"""One capture, several destinations: each has its own progress, whatever happens to the others."""

from __future__ import annotations

import json
from contextlib import ExitStack
from threading import Event

import psycopg
import pytest
from pyspark.sql import SparkSession

from apply_spark.errors import DestinationNotNew
from apply_spark.replay import run_replay
from console.local_stack.postgres import LocalPostgres
from console.local_stack.spark import spark_runtime
from schemas.identifiers import DestinationName, TableName
from tests.conftest import MakePipeline
from tests.contract.destination_places import DeltaPlace, PostgresPlace
from tests.support.builders import a_table
from tests.support.command import penstock
from tests.support.destinations import RunningApply, add_duckdb, add_section, assert_same, settle
from tests.support.eventually import eventually
from tests.support.meanwhile import meanwhile, writes_of_every_kind
from tests.support.pipeline import Pipeline

TABLES = ("t", "bag")


def a_pipeline_with_rows(make_pipeline: MakePipeline) -> Pipeline:
    pipeline = make_pipeline()
    pipeline.sql(
        "create table t (id int primary key, payload text, n int)",
        "create table bag (n int)",
        "insert into t select i, repeat('x', 100), 0 from generate_series(1, 20000) i",
    )
    pipeline.publish(*TABLES)
    return pipeline


def rows(session: psycopg.Connection, table: str) -> list[str]:
    return [text for (text,) in session.execute(f"select t::text from {table} t order by 1").fetchall()]


@pytest.mark.further
@pytest.mark.timeout(600)  # commits of Delta take seconds
def test_duckdb_delta_and_postgres_equal_the_source_after_kills_and_one_joins_under_way(
    make_pipeline: MakePipeline, postgres: LocalPostgres, spark: SparkSession
) -> None:
    pipeline = a_pipeline_with_rows(make_pipeline)
    delta = DeltaPlace(pipeline.folder, spark)
    add_section(pipeline, "delta", 'type = "delta"', f'path = "{delta.path}"')
    mirror = PostgresPlace(postgres)
    pipeline.start()
    pipeline.start_apply_process("delta")
    with ExitStack() as running:
        with meanwhile(writes_of_every_kind(pipeline, "t", "bag"), pause=0.1):
            at_kill = pipeline.settle(*TABLES).lsn
            eventually(
                lambda: any(delta.path.glob("public/*/_delta_log")), seconds=120, what="the first commit of Delta"
            )
            pipeline.kill_apply()
            pipeline.kill_capture()
            pipeline.start_apply_process("delta")
            add_section(pipeline, "mirror", 'type = "postgres"', f'dsn = "{mirror.dsn}"')
            pipeline.start_capture()
            joined = running.enter_context(RunningApply(pipeline, "mirror", spark))
            assert settle(pipeline, "mirror", TABLES, joined) > at_kill
        settle(pipeline, "mirror", TABLES, joined)
        settle(pipeline, "delta", TABLES)
    pipeline.assert_equal(*TABLES)

    with psycopg.connect(mirror.dsn) as there:
        for table in TABLES:
            assert rows(there, table) == rows(pipeline.source, table)
    for table in TABLES:
        here = pipeline.source.execute(f"select * from {table}").fetchall()
        assert sorted(delta.rows(a_table(name=TableName("public", table)))) == sorted(here), table


def test_a_destination_that_capture_does_not_know_yet_holds_no_wal_and_one_that_it_knows_does(
    make_pipeline: MakePipeline, spark: SparkSession
) -> None:
    pipeline = a_pipeline_with_rows(make_pipeline)
    pipeline.start()
    pipeline.assert_equal(*TABLES)
    path = add_duckdb(pipeline, "second")
    add_duckdb(pipeline, "past", 'filled_by = "replay"')  # which never reports, and is never waited for

    with RunningApply(pipeline, "second", spark) as applied:
        left_at = settle(pipeline, "second", TABLES, applied)
    pipeline.sql("insert into bag select generate_series(1, 1000)")
    pipeline.settle(*TABLES)
    eventually(lambda: pipeline.confirmed_lsn() > left_at, what="the slot to go on without it")
    pipeline.stop_capture()
    pipeline.start_capture()
    with RunningApply(pipeline, "second", spark) as applied:
        pipeline.settle(*TABLES)
        held_at = settle(pipeline, "second", TABLES, applied)
        eventually(lambda: pipeline.confirmed_lsn() >= held_at, what="the slot to move with both")
    pipeline.sql("insert into bag select generate_series(1, 1000)")
    pipeline.settle(*TABLES)
    status = json.loads(penstock("status", "-c", str(pipeline.file), "--json").stdout)

    assert status["slot"]["held_by"] == ["second"]
    assert set(status["destinations"]) == {"lake", "second"}
    assert held_at <= pipeline.confirmed_lsn() < pipeline.settle(*TABLES).lsn
    with RunningApply(pipeline, "second", spark) as applied:
        settle(pipeline, "second", TABLES, applied)
    assert_same(pipeline, path, TABLES)


def test_a_replay_beside_a_running_destination_ends_and_apply_takes_it_on(
    make_pipeline: MakePipeline, spark: SparkSession
) -> None:
    pipeline = a_pipeline_with_rows(make_pipeline)
    pipeline.start()
    pipeline.assert_equal(*TABLES)
    path = add_duckdb(pipeline, "second")

    with meanwhile(writes_of_every_kind(pipeline, "t", "bag"), pause=0.05):
        status = json.loads(penstock("status", "-c", str(pipeline.file), "--json").stdout)
        done = penstock("replay", "-c", str(pipeline.file), "--destination", "second")

    assert status["replay"]["from_lsn"] == str(max(pipeline.generation(table) for table in TABLES))
    assert {name: facts["reason"] for name, facts in status["replay"]["tables"].items()} == {
        "public.t": None,
        "public.bag": None,
    }
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("second holds every transaction with commit LSN < ")
    with pytest.raises(DestinationNotNew, match="Destination second has progress of its own"):
        run_replay(pipeline.config().apply_config(DestinationName("second"), spark_runtime()), None, Event(), spark)
    with RunningApply(pipeline, "second", spark) as applied:
        settle(pipeline, "second", TABLES, applied)
    pipeline.assert_equal(*TABLES)
    assert_same(pipeline, path, TABLES)
