"""A broker that is gone in the middle of a question, and one that is away when capture begins an epoch."""

from __future__ import annotations

import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from apply_spark.range_reader import RangeReader
from apply_spark.read import OffsetRange
from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from console.local_stack.processes import free_port
from schemas.connections import KafkaConfig
from stores.kafka_log import KafkaLog, TopicKind, durable_producer
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline
from tests.support.proxy import Proxy

UNDER_WAY_SECONDS = 0.1


def test_a_topic_is_not_empty_because_the_connection_broke_while_its_length_was_asked_for() -> None:
    """Found with `make chaos SEED=300`: when the broker was killed, librdkafka told -1001 as the end of a topic."""
    behind = free_port()
    with (
        Proxy(behind) as proxy,
        LocalKafka(behind={behind: proxy.port}),
        ThreadPoolExecutor(1) as pool,
    ):
        config = KafkaConfig(bootstrap_servers=f"127.0.0.1:{proxy.port}")
        with KafkaLog(config) as log:
            log.create("t", TopicKind.RECORDS)
            producer = durable_producer(config, {})
            for _ in range(3):
                producer.produce("t", b"a record")
            producer.flush(30)
            told = [log.ends(["t"])]

            for _ in range(3):
                proxy.slow(seconds=3 * UNDER_WAY_SECONDS)
                asked = pool.submit(log.ends, ["t"])
                time.sleep(UNDER_WAY_SECONDS)  # the question is on its way
                proxy.reset()
                proxy.heal()
                told.append(asked.result(60))

    assert told == [{"t": (3,)}] * 4


def test_who_reads_over_a_connection_that_fell_silent_takes_a_new_one_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself the client would wait for a minute, `socket.timeout.ms`, and by then its reader has given up."""
    monkeypatch.setattr("stores.kafka_log.ASK_SECONDS", 1.0)
    monkeypatch.setattr("apply_spark.range_reader.ASK_SECONDS", 1.0)
    behind = free_port()
    with Proxy(behind) as proxy, LocalKafka(behind={behind: proxy.port}):
        config = KafkaConfig(bootstrap_servers=f"127.0.0.1:{proxy.port}", patience=timedelta(seconds=20))
        with KafkaLog(config) as log, closing(RangeReader(config)) as reader:
            log.create("t", TopicKind.RECORDS)
            producer = durable_producer(config, {})
            for number in range(3):
                producer.produce("t", str(number).encode())
            producer.flush(30)
            list(log.read("t", 0, 1))
            reader.read({"t": OffsetRange(0, 1)})

            proxy.cut()
            small = [record.value for record in log.read("t", 1, 3)]
            large = reader.read({"t": OffsetRange(1, 3)})["t"].values

    assert small == [b"1", b"2"]
    assert [value for array in large for value in array.to_pylist()] == small


def test_a_broker_that_is_away_for_longer_than_its_patience_when_an_epoch_begins_is_waited_for(
    postgres: LocalPostgres, kafka: LocalKafka, tmp_path: Path
) -> None:
    with Pipeline(f"t{secrets.token_hex(4)}", postgres, kafka, None, tmp_path) as pipeline:
        pipeline.sql("create table t (id bigint primary key, a text)", "insert into t values (1, 'copied')")
        pipeline.publish("t")
        pipeline.start_capture(PENSTOCK_KAFKA__PATIENCE="1s", PENSTOCK_CAPTURE__IDLE_INTERVAL="5s")
        pipeline.assert_captured()
        assert pipeline.capture is not None

        pipeline.pause(pipeline.capture)
        kafka.kill()
        pipeline.sql(
            "select pg_terminate_backend(active_pid) from pg_replication_slots where active",
            "insert into t values (2, 'nobody there')",
        )
        pipeline.resume(pipeline.capture)
        eventually(lambda: "No Kafka broker answered" in pipeline.capture_log(), what="a wait for the broker")
        kafka.start()
        pipeline.assert_captured()

        assert pipeline.capture.process.poll() is None
