"""A checkpoint never covers a record that Kafka does not have: not one that got lost, not one that was refused."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from pydantic import ByteSize

from capture.checkpoints import CheckpointWriter, last_accepted
from capture.producer import BoundedProducer
from capture.transcode.choose import chosen_path
from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from schemas.checkpoint import Moved
from schemas.connections import KafkaConfig
from schemas.identifiers import Epoch, LogId, SchemaId
from schemas.lsn import Lsn
from stores.kafka_errors import KafkaRefused, RecordsLost
from stores.kafka_log import KafkaLog, TopicKind, durable_producer
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline


@pytest.fixture
def log(kafka: LocalKafka) -> Iterator[KafkaLog]:
    with KafkaLog(KafkaConfig(bootstrap_servers=kafka.bootstrap_servers)) as log:
        yield log


def test_a_cut_over_a_topic_that_did_not_grow_is_refused_and_nothing_is_written(
    log: KafkaLog, kafka: LocalKafka
) -> None:
    config = KafkaConfig(bootstrap_servers=kafka.bootstrap_servers)
    changes, checkpoints = (f"{each}-{secrets.token_hex(4)}" for each in ("changes", "checkpoints"))
    for topic in (changes, checkpoints):
        log.create(topic, TopicKind.RECORDS)
    writer = CheckpointWriter(config, log, checkpoints, LogId("log"), Epoch(1))
    writer.open(Lsn(100), {changes}, commit_ts=0, control=0)
    two = (Moved(changes, SchemaId(1), rows=2, bytes=20),)
    producer = durable_producer(config, {})
    producer.produce(changes, b"one of two")
    producer.flush(30)

    with pytest.raises(RecordsLost, match=f"2 records were sent to {changes}, and it is longer by 1 only"):
        writer.cut(Lsn(200), two, commit_ts=0, control=0, markers=())

    assert log.ends([checkpoints])[checkpoints] == (1,)
    assert writer.lsn == 100

    producer.produce(changes, b"the other")
    producer.flush(30)
    writer.cut(Lsn(200), two, commit_ts=0, control=0, markers=())

    last = last_accepted(log, checkpoints)
    assert last is not None
    assert (last[1].start, last[1].lsn, last[1].ends) == (100, 200, {changes: (2,)})


def test_a_change_that_the_broker_refuses_ends_capture_before_the_next_checkpoint(
    postgres: LocalPostgres, kafka: LocalKafka, tmp_path: Path
) -> None:
    with Pipeline(f"t{secrets.token_hex(4)}", postgres, kafka, None, tmp_path) as pipeline:
        pipeline.sql("create table orders (id int primary key, a text)")
        pipeline.publish("orders")
        pipeline.start_capture()
        topic = pipeline.change_topic("orders")
        eventually(lambda: pipeline.checkpoint_lsn() > 0, what="the first checkpoint")
        pipeline.sql("insert into orders values (1, 'small')")
        covered = pipeline.wal_lsn()
        eventually(lambda: pipeline.checkpoint_lsn() >= covered, what="a checkpoint that covers the first change")
        assert pipeline.records(topic) == 1
        limit_records_of(kafka, topic, 1_000)

        with pipeline.source.transaction():
            pipeline.sql(
                "insert into orders select 2, string_agg(md5(random()::text), '') from generate_series(1, 2000)"
            )
            before_commit = pipeline.wal_lsn()

        assert pipeline.capture is not None
        assert pipeline.capture.process.wait(60) == 1
        failure = pipeline.capture.failure()
        assert f"topic {topic} takes no batch of that size" in failure.reason
        assert f"Raise max.message.bytes of topic {topic}" in failure.solution
        assert pipeline.checkpoint_lsn() <= before_commit
        assert pipeline.records(topic) == 1

        limit_records_of(kafka, topic, 1_000_000)
        end = pipeline.wal_lsn()
        pipeline.start_capture()
        eventually(lambda: pipeline.checkpoint_lsn() >= end, what="capture to go on from its last checkpoint")
        assert pipeline.records(topic) == 2


def test_who_sends_after_a_refusal_hears_why_and_not_only_that_the_producer_ended(
    log: KafkaLog, kafka: LocalKafka
) -> None:
    topic = f"changes-{secrets.token_hex(4)}"
    log.create(topic, TopicKind.RECORDS)
    limit_records_of(kafka, topic, 1_000)
    config = KafkaConfig(bootstrap_servers=kafka.bootstrap_servers)
    producer = BoundedProducer(config, ByteSize(1_000_000), alive=lambda: None)
    records = chosen_path().batch()
    records.add(None, secrets.token_bytes(5_000))

    producer.send_batch(topic, records)
    eventually(lambda: producer._sender.flush(0.1) or producer._sender.failure, what="the refusal")

    with pytest.raises(KafkaRefused, match=f"topic {topic} takes no batch of that size"):
        producer.send_batch(topic, records)


def limit_records_of(kafka: LocalKafka, topic: str, size: int) -> None:
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)
