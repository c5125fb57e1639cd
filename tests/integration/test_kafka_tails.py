"""Whoever follows a topic hears of it where Kafka's client gives nothing more; a quiet topic is no reason to end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition

from schemas.connections import KafkaConfig
from stores.kafka_errors import ClientStuck
from stores.kafka_log import durable_producer
from stores.kafka_tail import Tail
from tests.support.eventually import eventually

MINUTE = 60.0


class Clock:
    """Goes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tail(config: KafkaConfig, kept_topic: str, clock: Clock) -> Iterator[Tail]:
    """It has read one record."""
    write(config, kept_topic)
    made = Tail(config, kept_topic, 0, clock)
    eventually(lambda: [record.offset for record in made.new()] == [0], what="the record that is there")
    yield made
    made.close()


def write(config: KafkaConfig, topic: str) -> None:
    producer = durable_producer(config, {})
    producer.produce(topic, b"a record")
    producer.flush()


def fall_silent(tail: Tail, topic: str) -> None:
    """The client goes on and fetches nothing, as one that lost its way after the broker came back."""
    tail._consumer.pause([TopicPartition(topic, 0)])


def test_a_client_that_gives_nothing_of_a_topic_that_has_more_is_told(
    config: KafkaConfig, kept_topic: str, tail: Tail, clock: Clock
) -> None:
    fall_silent(tail, kept_topic)
    write(config, kept_topic)

    clock.now += MINUTE
    assert list(tail.new()) == [], "it may be on its way"
    clock.now += MINUTE
    with pytest.raises(ClientStuck, match=f"Topic {kept_topic} ends at offset 2, .* nothing from 1 on"):
        list(tail.new())


def test_a_topic_that_is_quiet_is_read_for_good(config: KafkaConfig, kept_topic: str, tail: Tail, clock: Clock) -> None:
    for _ in range(5):
        clock.now += MINUTE
        assert list(tail.new()) == []

    write(config, kept_topic)
    eventually(lambda: [record.offset for record in tail.new()] == [1], what="the next record")


def test_a_broker_that_is_away_says_nothing_of_the_client(config: KafkaConfig, clock: Clock) -> None:
    nowhere = config.model_copy(update={"bootstrap_servers": "127.0.0.1:1"})
    tail = Tail(nowhere, "any", 0, clock)

    for _ in range(2):
        clock.now += MINUTE
        assert list(tail.new()) == []

    tail.close()
