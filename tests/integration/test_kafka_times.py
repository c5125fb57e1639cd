"""The time of a record is the broker's: retention goes by it, and a writer's clock may be wrong by days."""

from __future__ import annotations

import secrets
import time

import pytest
from confluent_kafka import KafkaError, Message

from console.local_stack.kafka import LocalKafka
from schemas.connections import KafkaConfig
from stores.kafka_log import KafkaLog, TopicKind, durable_producer

DAY_MS = 86_400_000


@pytest.mark.parametrize("kind", TopicKind)
def test_a_record_of_a_writer_whose_clock_is_wrong_is_taken_and_kept_as_any_other(
    kafka: LocalKafka, kind: TopicKind
) -> None:
    config, topic = KafkaConfig(bootstrap_servers=kafka.bootstrap_servers), f"times-{secrets.token_hex(4)}"
    before = time.time_ns() // 1_000_000
    failures: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        failures.append(error)

    with KafkaLog(config) as log:
        log.create(topic, kind)
        producer = durable_producer(config, {})
        for wrong in (before - 30 * DAY_MS, before + 30 * DAY_MS):
            producer.produce(topic, b"value", b"key", timestamp=wrong, on_delivery=delivered)
        producer.flush(30)
        told = [record.timestamp for record in log.read_all(topic)]

    assert failures == [None, None]
    assert [abs(each - before) < DAY_MS for each in told] == [True, True]
