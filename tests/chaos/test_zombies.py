"""Two of a kind, and processes that were frozen, replaced and thawed: one is heard, and the other does no harm."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from pyspark.sql import SparkSession

from capture.checkpoints import last_accepted
from console.local_stack.postgres import LocalPostgres
from console.stages import Stage
from schemas.identifiers import Epoch
from schemas.topics import Topics
from tests.conftest import MakePipeline
from tests.contract.destination_places import PostgresPlace
from tests.support.captured import MakeCaptured
from tests.support.destinations import RunningApply, settle
from tests.support.eventually import eventually
from tests.support.forked_stage import begun
from tests.support.pipeline import Pipeline
from tests.support.processes import frozen
from tests.support.shared_log import shared_log

SLOT = "select active_pid from pg_replication_slots where slot_name = %s"


@contextmanager
def another(pipeline: Pipeline, *arguments: str) -> Iterator[Stage]:
    """A stage of the same pipeline, beside the one that it has."""
    with (pipeline.folder / f"another-{arguments[0]}.log").open("wb") as log:
        stage = begun(arguments[0], [*arguments, "-c", str(pipeline.file)], os.environ, log)
    try:
        yield stage
    finally:
        stage.process.kill()
        stage.process.wait()
        stage.close()


def walsender(pipeline: Pipeline) -> int | None:
    row = pipeline.source.execute(SLOT, [f"penstock_{pipeline.name}"]).fetchone()
    return row[0] if row else None


def epoch(pipeline: Pipeline) -> Epoch:
    """Of the capture that is heard."""
    with shared_log(pipeline.config().kafka) as log:
        last = last_accepted(log, Topics(pipeline.config().pipeline).checkpoints)
    assert last is not None
    return last[1].epoch


def test_a_second_capture_waits_and_takes_over_when_the_first_is_gone(captured: MakeCaptured) -> None:
    pipeline, _ = captured("create table t (id bigint primary key, a text)", publish="for table t")
    copied = pipeline.assert_captured()
    first = epoch(pipeline)

    with another(pipeline, "capture") as second:
        log = pipeline.folder / "another-capture.log"
        eventually(lambda: "is active for PID" in log.read_text(), what="the second to be refused the slot")
        pipeline.sql("insert into t select i, 'by the first' from generate_series(1, 1000) i")
        pipeline.assert_captured()
        assert epoch(pipeline) == first
        pipeline.sql("insert into t select i, 'by either' from generate_series(1001, 20000) i")
        pipeline.kill_capture()
        pipeline.sql("insert into t select i, 'by the second' from generate_series(20001, 21000) i")
        pipeline.capture = None
        streamed = pipeline.assert_captured()
        code = second.process.poll()

        assert code is None
        assert epoch(pipeline) != first
        assert (streamed.log_id, streamed.generation) == (copied.log_id, copied.generation)


def test_a_capture_that_is_thawed_after_its_successor_began_is_not_heard_and_waits(captured: MakeCaptured) -> None:
    """It is frozen in the middle of a transaction, with records that Kafka does not have yet."""
    pipeline, _ = captured(
        "create table t (id bigint primary key, a text)", publish="for table t", PENSTOCK_KERNEL="reference"
    )
    pipeline.sql(f"alter database {pipeline.name} set wal_sender_timeout = '1s'")
    pipeline.stop_capture()
    pipeline.start_capture(PENSTOCK_KERNEL="reference")
    copied = pipeline.assert_captured()
    first = epoch(pipeline)
    assert pipeline.capture is not None
    pipeline.sql("insert into t select i, repeat('x', 100) from generate_series(1, 20000) i")
    topic = pipeline.change_topic("t")
    eventually(lambda: pipeline.records(topic) > 1_000, what="a part of the transaction")

    with frozen(pipeline.capture.process.pid):
        written = pipeline.records(topic)
        eventually(lambda: walsender(pipeline) is None, what="the walsender to give up")
        with another(pipeline, "capture") as second:
            old, pipeline.capture = pipeline.capture, second
            pipeline.sql("update t set a = 'changed' where id % 100 = 0")
            pipeline.assert_captured()
            taken_over = epoch(pipeline)
            os.kill(old.process.pid, signal.SIGCONT)
            log = pipeline.folder / "capture1.log"
            eventually(lambda: "open the next epoch" in log.read_text(), what="the old one to notice")
            pipeline.sql("delete from t where id % 7 = 0", "insert into t values (-1, 'after the thaw')")
            streamed = pipeline.assert_captured()
            heard, old_code = epoch(pipeline), old.process.poll()
            pipeline.capture = old

    assert written < 20_000, "it was frozen too late to be in the middle"
    assert heard == taken_over != first
    assert old_code is None
    assert (streamed.log_id, streamed.generation) == (copied.log_id, copied.generation)
    pipeline.sql("insert into t values (-2, 'after the second is gone')")
    pipeline.assert_captured()
    assert epoch(pipeline) != taken_over


@pytest.mark.further
def test_an_apply_that_is_thawed_after_its_successor_committed_writes_nothing_and_ends(
    make_pipeline: MakePipeline, postgres: LocalPostgres, spark: SparkSession
) -> None:
    """The network between was cut, so the server has given its session up, and the lock that this held."""
    place = PostgresPlace(postgres)
    pipeline = make_pipeline(f'[destinations.mirror]\ntype = "postgres"\ndsn = "{place.dsn}"')
    pipeline.sql(
        "create table t (id bigint primary key, a text)",
        "create table bag (a text)",
        "insert into t select i, 'copied' from generate_series(1, 100) i",
    )
    pipeline.publish("t", "bag")
    pipeline.start_capture()

    with (
        another(pipeline, "apply", "--destination", "mirror") as first,
        psycopg.connect(place.dsn, autocommit=True) as there,
    ):
        settle(pipeline, "mirror", ("t", "bag"))
        with frozen(first.process.pid):
            pipeline.sql("update t set a = 'changed' where id < 50", "insert into bag values ('once')")
            there.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where datname = current_database() and pid <> pg_backend_pid()"
            )
            with RunningApply(pipeline, "mirror", spark) as second:
                settle(pipeline, "mirror", ("t", "bag"), second)
        pipeline.sql("insert into bag values ('after the thaw')")
        code = first.process.wait(60)
        failure = first.failure()
        with RunningApply(pipeline, "mirror", spark) as second:
            settle(pipeline, "mirror", ("t", "bag"), second)

        assert code == 1, failure.reason
        assert "Traceback" not in (pipeline.folder / "another-apply.log").read_text()
        for table in ("t", "bag"):
            query = f"select t::text from {table} t order by 1"
            assert there.execute(query).fetchall() == pipeline.source.execute(query).fetchall()
