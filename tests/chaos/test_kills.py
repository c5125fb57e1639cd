"""Every part is killed at its worst moment; afterwards the destination equals the source: no row lost, none doubled.

Each test watches a table with a key and one without: the first would hide a row that came twice, the second shows it.
"""

from __future__ import annotations

import os
import signal

from console.local_stack.kafka import LocalKafka
from schemas.failpoints import VARIABLE
from tests.conftest import MakePipeline
from tests.support.captured import MakeCaptured
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline
from tests.support.workers import jvm_of

TABLES = ("keyed", "keyless")
SLOW = {"PENSTOCK_KERNEL": "reference"}
"""On the reference path there is time to hit the middle of something; the next start is on the compiled one."""


def a_pipeline_with_rows(make_pipeline: MakePipeline, rows: int) -> Pipeline:
    pipeline = make_pipeline()
    pipeline.sql(
        "create table keyed (id bigint primary key, a text, big text)",
        "create table keyless (id bigint, a text)",
        f"insert into keyed select i, 'row ' || i, repeat(md5(i::text), 4) from generate_series(1, {rows}) i",
        f"insert into keyless select i, 'row ' || i from generate_series(1, {rows}) i",
    )
    pipeline.publish()
    return pipeline


def test_killing_capture_inside_a_transaction_loses_no_row_and_repeats_none(make_pipeline: MakePipeline) -> None:
    pipeline = a_pipeline_with_rows(make_pipeline, 10)
    pipeline.start_capture(**SLOW)
    pipeline.start_apply()
    pipeline.assert_equal(*TABLES)

    with pipeline.source.transaction():
        pipeline.sql(
            "insert into keyless select i, 'in one' from generate_series(100, 40100) i",
            "insert into keyed select i, 'in one', '' from generate_series(100, 40100) i",
            "update keyed set id = -id where id < 10",
        )
    eventually(lambda: pipeline.records(pipeline.change_topic("keyless")) > 2_000, what="half of the transaction")
    pipeline.kill_capture()
    written = pipeline.records(pipeline.change_topic("keyed"))
    pipeline.start_capture()

    assert written < 40_001, "the kill came too late to be in the middle"
    pipeline.assert_equal(*TABLES)


def test_killing_capture_in_the_middle_of_a_copy_loses_no_row_and_repeats_none(make_pipeline: MakePipeline) -> None:
    pipeline = a_pipeline_with_rows(make_pipeline, 60_000)
    pipeline.start_capture(**SLOW)
    pipeline.start_apply()
    eventually(lambda: pipeline.copied_records("keyed") > 1_000, what="a part of the copy")

    pipeline.kill_capture()
    copied = pipeline.copied_records("keyed")
    pipeline.sql("delete from keyed where id % 3 = 0", "update keyed set a = 'changed' where id % 7 = 0")
    pipeline.start_capture()

    assert copied < 60_000, "the kill came too late to be in the middle"
    pipeline.assert_equal(*TABLES)


def test_killing_apply_between_its_commit_and_the_feedback_repeats_nothing(make_pipeline: MakePipeline) -> None:
    pipeline = a_pipeline_with_rows(make_pipeline, 500)
    pipeline.start_capture()
    pipeline.start_apply()
    pipeline.assert_equal(*TABLES)
    pipeline.stop_apply()
    pipeline.sql("insert into keyless select 1, 'again'", "update keyed set a = 'x' where id < 100")

    pipeline.start_apply_process(**{VARIABLE: "apply.committed=kill"})
    pipeline.wait_for_death_of_apply()
    assert pipeline.lake("select count(*) from public.keyless") == [(501,)]
    pipeline.start_apply()

    pipeline.assert_equal(*TABLES)


def test_killing_apply_in_the_middle_of_a_write_leaves_no_half(make_pipeline: MakePipeline) -> None:
    pipeline = a_pipeline_with_rows(make_pipeline, 500)
    pipeline.start_capture()
    pipeline.start_apply()
    pipeline.assert_equal(*TABLES)
    pipeline.stop_apply()
    with pipeline.source.transaction():
        pipeline.sql("insert into keyless select 1, 'again'", "update keyed set a = 'x' where id < 100")

    pipeline.start_apply_process(**{VARIABLE: "duckdb.deleted=kill"})
    pipeline.wait_for_death_of_apply()
    assert pipeline.lake("select count(*), count(*) filter (a = 'x') from public.keyed") == [(500, 0)]
    pipeline.start_apply()

    pipeline.assert_equal(*TABLES)


def test_a_restart_of_the_broker_is_waited_out(make_pipeline: MakePipeline, kafka: LocalKafka) -> None:
    pipeline = a_pipeline_with_rows(make_pipeline, 500)
    pipeline.start()
    pipeline.assert_equal(*TABLES)

    kafka.kill()
    pipeline.sql(
        "insert into keyless select i, 'broker away' from generate_series(1, 3000) i",
        "update keyed set id = id + 10000 where id <= 100",
    )
    kafka.start()

    if pipeline.apply_error is not None:
        pipeline.start_apply()
    pipeline.assert_equal(*TABLES)
    assert pipeline.capture is not None
    assert pipeline.capture.process.poll() is None


def test_a_second_apply_on_one_destination_is_refused(make_pipeline: MakePipeline) -> None:
    pipeline = a_pipeline_with_rows(make_pipeline, 50)
    pipeline.start()
    pipeline.assert_equal(*TABLES)

    pipeline.start_apply_process()

    assert pipeline.apply is not None
    assert pipeline.apply.process.wait(60) == 1
    assert "Another apply writes to" in pipeline.apply.failure().reason
    pipeline.sql("insert into keyless values (1, 'still going')")
    pipeline.assert_equal(*TABLES)


def test_sigterm_drains_capture_and_the_next_one_continues(make_pipeline: MakePipeline) -> None:
    pipeline = a_pipeline_with_rows(make_pipeline, 50)
    pipeline.start()
    pipeline.assert_equal(*TABLES)
    pipeline.sql("insert into keyless select i, 'before' from generate_series(1, 1000) i")

    code = pipeline.stop_capture()
    pipeline.sql("insert into keyless select i, 'between' from generate_series(1, 1000) i")
    pipeline.start_capture()

    assert code == 0
    pipeline.assert_equal(*TABLES)


def test_a_killed_walsender_is_replaced_without_a_restart_of_capture(make_pipeline: MakePipeline) -> None:
    pipeline = a_pipeline_with_rows(make_pipeline, 50)
    pipeline.start()
    pipeline.assert_equal(*TABLES)

    pipeline.sql("select pg_terminate_backend(active_pid) from pg_replication_slots where active")
    pipeline.sql("insert into keyless select i, 'after' from generate_series(1, 1000) i")

    pipeline.assert_equal(*TABLES)
    assert pipeline.capture is not None
    assert pipeline.capture.process.poll() is None


def test_a_jvm_that_is_gone_ends_apply_with_a_reason(captured: MakeCaptured) -> None:
    """As one does that lacks memory for a very large row."""
    pipeline, _ = captured("create table t (id int primary key)", publish="for table t")
    pipeline.start_apply_process()
    pipeline.settle("t")

    os.kill(jvm_of(pipeline), signal.SIGKILL)

    assert pipeline.apply is not None
    assert pipeline.apply.process.wait(60) == 1
    failure = pipeline.apply.failure()
    assert failure.reason == "apply: The Java process of Spark has ended."
    assert "apply.driver_memory" in failure.solution
