"""Tables that are copied in many ranges by several workers are exact at the destination, whatever happens meanwhile.

Ranges are small here, so that a few thousand rows are many of them.
"""

from __future__ import annotations

import json
import os
import signal

import pytest

from schemas.identifiers import TableName
from tests.conftest import MakePipeline
from tests.support.builders import a_name
from tests.support.eventually import eventually
from tests.support.meanwhile import meanwhile, writes_of_every_kind
from tests.support.pipeline import Pipeline
from tests.support.postgres_version import since
from tests.support.processes import alive, signal_all
from tests.support.workers import kill_a_worker, nursery_of, workers_of

SMALL_RANGES = {"PENSTOCK_CAPTURE__COPY_RANGE_SIZE": "64KiB"}
SLOW = {**SMALL_RANGES, "PENSTOCK_KERNEL": "reference"}
"""On the reference path there is time to hit the middle of a copy."""


@pytest.fixture(scope="module")
def running(make_shared_pipeline: MakePipeline) -> Pipeline:
    pipeline = make_shared_pipeline()
    pipeline.sql(f'create publication "{pipeline.name}" for all tables with (publish_via_partition_root)')
    pipeline.start_capture(**SMALL_RANGES)
    pipeline.start_apply()
    return pipeline


def copies_of(pipeline: Pipeline, table: str) -> list[int]:
    """How many ranges each copy of the table had, as capture logged it."""
    logs = sorted(pipeline.folder.glob("capture*.log"))
    lines = [line for log in logs for line in log.read_text().splitlines() if '"table copy started"' in line]
    entries = [json.loads(line) for line in lines]
    return [entry["ranges"] for entry in entries if entry["table"] == str(TableName("public", table))]


def test_a_table_in_many_ranges_is_exact_under_concurrent_writes(running: Pipeline) -> None:
    table, bag = a_name(), a_name()
    with running.source.transaction():
        running.sql(
            f"create table {table} (id int primary key, payload text, n int)",
            f"create table {bag} (id int, payload text)",
            f"insert into {table} select i, repeat(md5(i::text), 5), 0 from generate_series(1, 30000) i",
            f"insert into {bag} select i, repeat(md5(i::text), 5) from generate_series(1, 30000) i",
        )

    with meanwhile(writes_of_every_kind(running, table, bag)):
        eventually(lambda: running.known_phase(table) == "Ready", what="the table to be ready")

    running.assert_equal(table, bag)
    assert copies_of(running, table)[0] > 20
    assert copies_of(running, bag)[0] > 20


def test_an_empty_table_one_of_one_row_and_one_of_dead_rows_are_copied(running: Pipeline) -> None:
    empty, single, dead = a_name(), a_name(), a_name()
    with running.source.transaction():
        running.sql(
            *(
                f"create table {table} (id int primary key, a text) with (autovacuum_enabled = false)"
                for table in (empty, single, dead)
            ),
            f"insert into {single} values (1, 'alone')",
            f"insert into {dead} select i, repeat('x', 200) from generate_series(1, 3000) i",
            f"delete from {dead}",
        )

    running.assert_equal(empty, single, dead)

    assert (copies_of(running, empty), copies_of(running, single)) == ([1], [1])
    assert copies_of(running, dead)[0] > 5
    assert running.lake(f"select count(*) from public.{dead}") == [(0,)]


def test_the_leaves_of_a_partitioned_table_are_each_divided(running: Pipeline) -> None:
    table = a_name()
    with running.source.transaction():
        running.sql(
            f"create table {table} (id int primary key, a text) partition by range (id)",
            f"create table {table}_a partition of {table} for values from (0) to (10000)",
            f"create table {table}_b (a text, gone int, id int not null)",
            f"alter table {table}_b drop column gone",
            f"alter table {table} attach partition {table}_b for values from (10000) to (20000)",
            f"create table {table}_c partition of {table} for values from (20000) to (30000)",
            f"insert into {table} select i, repeat(md5(i::text), 4) from generate_series(1, 19999) i",
        )

    running.assert_equal(table)

    assert copies_of(running, table)[0] > 20
    assert copies_of(running, f"{table}_a") == []


@since(15, "column lists and row filters")
def test_a_row_filter_and_a_column_list_hold_in_every_range(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline()
    pipeline.sql(
        "create table t (id int primary key, secret text, a text)",
        "insert into t select i, 'hidden', repeat(md5(i::text), 4) from generate_series(1, 20000) i",
        f'create publication "{pipeline.name}" for table t (id, a) where (id % 3 = 0 or id < 10)',
    )
    pipeline.start_capture(**SMALL_RANGES)
    pipeline.start_apply()
    pipeline.settle("t")

    expected = pipeline.source.execute("select id, a from t where id % 3 = 0 or id < 10 order by id").fetchall()
    assert pipeline.lake("select * from public.t order by id") == expected
    assert copies_of(pipeline, "t")[0] > 20


def a_slow_copy(make_pipeline: MakePipeline) -> Pipeline:
    """A partitioned table of which some ranges are copied and some are not."""
    pipeline = make_pipeline()
    pipeline.sql(
        "create table t (id int primary key, a text) partition by range (id)",
        "create table t_low partition of t for values from (0) to (30001)",
        "create table t_high partition of t for values from (30001) to (60001)",
        "insert into t select i, repeat(md5(i::text), 4) from generate_series(1, 60000) i",
        f'create publication "{pipeline.name}" for table t with (publish_via_partition_root)',
    )
    pipeline.start_capture(**SLOW)
    pipeline.start_apply()
    eventually(lambda: pipeline.copied_records("t") > 1_000, what="a part of the copy")
    return pipeline


def test_a_leaf_that_is_rewritten_during_the_copy_makes_the_next_generation(make_pipeline: MakePipeline) -> None:
    pipeline = a_slow_copy(make_pipeline)

    pipeline.sql("delete from t_high where id % 2 = 0", "vacuum full t_high")
    copied = pipeline.copied_records("t")

    assert copied < 60_000, "the rewrite came too late to be in the middle"
    pipeline.assert_equal("t")
    assert len(copies_of(pipeline, "t")) > 1


def test_a_truncate_between_the_snapshot_and_a_range_makes_the_next_generation(make_pipeline: MakePipeline) -> None:
    pipeline = a_slow_copy(make_pipeline)

    pipeline.sql("truncate t", "insert into t select i, 'after' from generate_series(1, 100) i")

    pipeline.assert_equal("t")
    assert len(copies_of(pipeline, "t")) > 1


def test_a_killed_worker_of_a_table_that_may_not_resume_costs_a_generation_and_no_row(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = a_slow_copy(make_pipeline)

    kill_a_worker(pipeline, "t")
    copied = pipeline.copied_records("t")

    assert copied < 60_000, "the kill came too late to be in the middle"
    pipeline.assert_equal("t")
    assert len(copies_of(pipeline, "t")) == 2
    assert pipeline.capture is not None
    assert pipeline.capture.process.poll() is None
    eventually(lambda: not workers_of(pipeline), what="the workers to end when there is no work")


def test_a_killed_capture_leaves_no_worker_behind(make_pipeline: MakePipeline) -> None:
    pipeline = a_slow_copy(make_pipeline)
    left = [nursery_of(pipeline), *workers_of(pipeline)]

    pipeline.kill_capture()

    eventually(lambda: not any(alive(pid) for pid in left), what="the workers to end")


def test_a_killed_nursery_ends_capture_with_a_reason_and_the_next_one_goes_on(make_pipeline: MakePipeline) -> None:
    """Its workers end with it, also those that wait: for a server that is silent, or here because they are stopped."""
    pipeline = a_slow_copy(make_pipeline)
    workers = workers_of(pipeline)
    signal_all(workers, signal.SIGSTOP)

    os.kill(nursery_of(pipeline), signal.SIGKILL)
    refusal = pipeline.refused()
    eventually(lambda: not any(alive(pid) for pid in workers), what="the workers to end")
    pipeline.start_capture()

    assert "The process that starts the workers of copies has ended." in refusal.reason
    pipeline.assert_equal("t")
