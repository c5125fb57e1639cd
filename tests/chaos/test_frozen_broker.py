"""A broker that answers nothing for longer than wal_sender_timeout: capture waits in bounded memory, keeps its slot."""

from __future__ import annotations

import time

from console.local_stack.kafka import LocalKafka
from tests.conftest import MakePipeline
from tests.support.pipeline import Pipeline
from tests.support.processes import frozen

FROZEN_SECONDS = 7.0
TIMEOUT = "2s"
ROWS, ROW_BYTES = 25_000, 3_200
QUEUE = 8 * 1024**2


def walsender(pipeline: Pipeline) -> int | None:
    row = pipeline.source.execute(
        "select active_pid from pg_replication_slots where slot_name = %s", [f"penstock_{pipeline.name}"]
    ).fetchone()
    return row[0] if row else None


def test_a_frozen_broker_costs_neither_the_connection_nor_memory(
    make_pipeline: MakePipeline, kafka: LocalKafka
) -> None:
    pipeline = make_pipeline()
    pipeline.sql(
        f"alter database {pipeline.name} set wal_sender_timeout = '{TIMEOUT}'",
        "create table keyed (id bigint primary key, big text)",
        "create table keyless (id bigint)",
    )
    pipeline.publish()
    pipeline.start_capture(
        PENSTOCK_CAPTURE__PRODUCER_MEMORY=str(QUEUE),
        PENSTOCK_KAFKA__MAX_RECORD=str(QUEUE),
        PENSTOCK_CAPTURE__IDLE_INTERVAL="5s",  # seldom a checkpoint under way: capture waits with a full queue
    )
    pipeline.start_apply()
    pipeline.assert_equal("keyed", "keyless")
    before, peak = walsender(pipeline), pipeline.capture_peak_bytes()

    with frozen(kafka.pid):
        with pipeline.source.transaction():
            pipeline.sql(
                f"insert into keyed select i, repeat(md5(i::text), {ROW_BYTES // 32})"
                f"  from generate_series(1, {ROWS}) i",
                "insert into keyless select i from generate_series(1, 1000) i",
            )
        time.sleep(FROZEN_SECONDS)
        waited = pipeline.capture_peak_bytes() - peak

    if pipeline.apply_error is not None:
        pipeline.start_apply()
    pipeline.assert_equal("keyed", "keyless")
    assert walsender(pipeline) == before, "the connection was lost: status updates came too late"
    assert waited < ROWS * ROW_BYTES / 3, f"capture grew by {waited:,} bytes while {QUEUE:,} may wait"
