"""Three brokers that come and go: capture waits for them in bounded memory, keeps its slot, and goes on exactly."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from console.control import send_command
from console.local_stack.postgres import LocalPostgres
from schemas.control import Resync
from schemas.identifiers import TableName
from tests.support.captured import Captured
from tests.support.eventually import eventually
from tests.support.kafka_cluster import Cluster, kafka_cluster
from tests.support.pipeline import Pipeline

QUEUE = 4 * 1024**2
ROWS, ROW_BYTES = 10_000, 3_200
SETTINGS = {
    "PENSTOCK_KAFKA__REPLICATION_FACTOR": "3",
    "PENSTOCK_KAFKA__MAX_RECORD": str(QUEUE),
    "PENSTOCK_CAPTURE__PRODUCER_MEMORY": str(QUEUE),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with kafka_cluster() as cluster:
        yield cluster


@pytest.fixture
def pipeline(cluster: Cluster, postgres: LocalPostgres, tmp_path: Path) -> Iterator[Pipeline]:
    """Of one table. A walsender that hears nothing for two seconds ends."""
    with ExitStack() as stack:
        stack.callback(cluster.start_all)
        pipeline = stack.enter_context(Pipeline(f"t{secrets.token_hex(4)}", postgres, cluster, None, tmp_path))
        pipeline.sql(
            f"alter database {pipeline.name} set wal_sender_timeout = '2s'",
            "create table t (id bigint primary key, a text)",
        )
        pipeline.publish("t")
        yield pipeline


def captured(pipeline: Pipeline) -> Captured:
    pipeline.start_capture(**SETTINGS)
    log = Captured(pipeline)
    log.assert_rows("t")
    return log


def insert(pipeline: Pipeline, first: int, last: int, width: int = 1) -> None:
    pipeline.sql(f"insert into t select i, repeat(md5(i::text), {width}) from generate_series({first}, {last}) i")


def walsender(pipeline: Pipeline) -> int | None:
    row = pipeline.source.execute(
        "select active_pid from pg_replication_slots where slot_name = %s", [f"penstock_{pipeline.name}"]
    ).fetchone()
    return row[0] if row else None


def test_a_leader_that_dies_is_replaced_and_capture_goes_on_exactly(cluster: Cluster, pipeline: Pipeline) -> None:
    topic = pipeline.change_topic("t")
    cluster.create(topic, 2, 3, 1, in_step=2)
    log = captured(pipeline)
    before = walsender(pipeline)

    insert(pipeline, 1, 5_000)
    cluster.brokers[2].kill()
    insert(pipeline, 5_001, 10_000)
    cluster.wait_for_leader(topic, 1, 3)

    log.assert_rows("t")
    assert walsender(pipeline) == before


def test_too_few_replicas_hold_capture_in_bounded_memory_with_a_reason_until_one_is_back(
    cluster: Cluster, pipeline: Pipeline
) -> None:
    log = captured(pipeline)
    before, peak = walsender(pipeline), pipeline.capture_peak_bytes()

    for number in (2, 3):
        cluster.brokers[number].kill()
    insert(pipeline, 1, ROWS, ROW_BYTES // 32)
    eventually(lambda: "takes records from 2 on (min.insync.replicas)" in pipeline.capture_log(), what="the reason")
    waited = pipeline.capture_peak_bytes() - peak
    cluster.brokers[2].start()

    log.assert_rows("t")
    assert walsender(pipeline) == before, "the connection was lost: status updates came too late"
    assert waited < ROWS * ROW_BYTES / 2, f"capture grew by {waited:,} bytes while {QUEUE:,} may wait"
    assert "Start the brokers that are away" in pipeline.capture_log()


def test_brokers_that_were_all_killed_at_once_are_waited_for(cluster: Cluster, pipeline: Pipeline) -> None:
    log = captured(pipeline)
    before = walsender(pipeline)

    insert(pipeline, 1, 5_000)
    for broker in cluster.brokers.values():
        broker.kill()
    insert(pipeline, 5_001, 10_000)
    cluster.start_all()

    log.assert_rows("t")
    assert walsender(pipeline) == before


def test_records_that_an_unclean_election_lost_end_capture_with_a_reason_and_a_resync_heals_the_table(
    cluster: Cluster, pipeline: Pipeline
) -> None:
    topic = pipeline.change_topic("t")
    cluster.create(topic, 2, 3, in_step=1)
    log = captured(pipeline)
    insert(pipeline, 1, 1)
    log.assert_reached()
    cluster.wait_for_replicas(topic, 2, 3)
    cluster.brokers[3].kill()
    cluster.wait_for_replicas(topic, 2)
    insert(pipeline, 2, 2)
    log.assert_reached()

    cluster.brokers[2].kill()
    cluster.brokers[3].start()
    cluster.elect(topic, 3)
    insert(pipeline, 3, 3)
    refusal = pipeline.refused()
    pipeline.start_capture(**SETTINGS)
    insert(pipeline, 4, 4)
    log.assert_reached()
    lost = log.rows("t")
    send_command(pipeline.config(), Resync(TableName("public", "t")))

    eventually(lambda: len(log.generations("t")) > 1, what="a new copy")
    log.assert_rows("t")
    assert topic in refusal.reason
    assert "penstock resync" in refusal.solution
    assert [row[0] for row in lost or []] == [1, 3, 4]
