"""Retention has taken something that a new destination needs: each such table is named, and a resync gives it back."""

from __future__ import annotations

import json
import threading

import pytest
from pyspark.sql import SparkSession

from apply_spark.errors import ReplayImpossible
from apply_spark.replay import Missing, run_replay
from console.control import send_command
from console.local_stack.spark import spark_runtime
from console.pipeline_state import read_feedback
from schemas.control import Resync
from schemas.identifiers import DestinationName, TableName
from schemas.phases import Errored
from schemas.topics import Topics
from stores.kafka_log import KafkaLog
from tests.conftest import MakePipeline
from tests.support.command import penstock
from tests.support.destinations import RunningApply, add_duckdb, assert_same, settle
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline
from tests.support.retention import expire

TABLES = ("orders", "items")
ORDERS, ITEMS = (TableName("public", table) for table in TABLES)


def a_pipeline(make_pipeline: MakePipeline) -> Pipeline:
    """Two tables that are level, and one that has left."""
    pipeline = make_pipeline()
    for table in (*TABLES, "gone"):
        pipeline.sql(f"create table {table} (id int primary key)", f"insert into {table} values (1), (2)")
    pipeline.publish(*TABLES, "gone")
    pipeline.start()
    pipeline.settle(*TABLES, "gone")
    pipeline.sql(
        "insert into orders values (3)",
        "insert into items values (3)",
        f'alter publication "{pipeline.name}" drop table gone',
    )
    eventually(lambda: pipeline.known_phase("gone") is None, what="the end of a table")
    pipeline.assert_equal(*TABLES)
    return pipeline


def refused(pipeline: Pipeline, spark: SparkSession) -> str:
    add_duckdb(pipeline, "past", 'filled_by = "replay"')
    config = pipeline.config().apply_config(DestinationName("past"), spark_runtime())
    with pytest.raises(ReplayImpossible) as error:
        run_replay(config, None, threading.Event(), spark, Missing.REFUSED)
    assert "Run `penstock resync TABLE` for each" in error.value.solution
    return error.value.reason


def reasons_in_status(pipeline: Pipeline) -> dict[str, str | None]:
    report = json.loads(penstock("status", "-c", str(pipeline.file), "--json").stdout)
    return {table: facts["reason"] for table, facts in report["replay"]["tables"].items()}


def test_a_copy_and_changes_that_are_gone_are_named_and_other_tables_are_not(
    make_pipeline: MakePipeline, spark: SparkSession
) -> None:
    pipeline = a_pipeline(make_pipeline)
    config, topics = pipeline.config(), Topics(pipeline.config().pipeline)
    copied = topics.copy(ORDERS, pipeline.generation("orders"))

    assert reasons_in_status(pipeline) == {"public.items": None, "public.orders": None}
    expire(config, copied, 1)
    pipeline.sql("insert into items values (4)")
    pipeline.settle(*TABLES)
    expire(config, topics.changes(ITEMS), 1)
    reason = refused(pipeline, spark)

    assert f"public.orders: Topic {copied} begins at offset 1; 0 is needed" in reason
    assert f"public.items: Topic {topics.changes(ITEMS)} begins at offset 1; 0 is needed" in reason
    assert "gone" not in reason
    assert reasons_in_status(pipeline) == {
        "public.items": "changes since its copy are gone",
        "public.orders": "records of its copy are gone",
    }


def test_a_log_that_is_cut_names_every_table_and_a_resync_fills_the_new_destination(
    make_pipeline: MakePipeline, spark: SparkSession
) -> None:
    pipeline = a_pipeline(make_pipeline)
    config, checkpoints = pipeline.config(), Topics(pipeline.config().pipeline).checkpoints
    path, joined = add_duckdb(pipeline, "joined"), DestinationName("joined")

    with KafkaLog(config.kafka) as log:
        expire(config, checkpoints, log.ends([checkpoints])[checkpoints][0] - 1)
    reason = refused(pipeline, spark)
    for table in TABLES:
        assert f"public.{table}: No copy of it is left in the log, which begins at " in reason
    assert "gone" not in reason

    with RunningApply(pipeline, joined, spark) as applied, KafkaLog(config.kafka) as log:
        told = eventually(lambda: read_feedback(log, config.pipeline, [joined]).get(joined), what="its feedback")
        assert {report.table for report in told.tables} == {ORDERS, ITEMS}
        for report in told.tables:
            assert isinstance(report.phase, Errored)
            assert report.phase.reason.startswith("No copy of it is left in the log")
            assert report.phase.solution == f"Run `penstock resync {report.table}`."
            send_command(config, Resync(report.table))
        eventually(lambda: _is_healed(log, pipeline), what="new copies of both tables")
        settle(pipeline, joined, TABLES, applied)

    assert_same(pipeline, path, TABLES)


def _is_healed(log: KafkaLog, pipeline: Pipeline) -> bool:
    joined = DestinationName("joined")
    told = read_feedback(log, pipeline.config().pipeline, [joined])[joined]
    return not any(isinstance(report.phase, Errored) for report in told.tables)
