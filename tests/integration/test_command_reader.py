"""Which commands of the control topic a destination does: those for it, once, in order, and none from before it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from apply_spark.commands import CommandReader, first_command_of
from apply_spark.progress import Progress
from schemas.connections import KafkaConfig
from schemas.control import Control, Pause, Resume, Resync
from schemas.identifiers import DestinationName, LogId, TableName
from stores.kafka_log import KafkaLog, durable_producer
from stores.kafka_tail import Tail
from tests.support.eventually import eventually

LAKE, OTHER = DestinationName("lake"), DestinationName("other")
ORDERS = TableName("public", "orders")
COMMANDS = (Pause(ORDERS), Resync(ORDERS), Resume(ORDERS, OTHER), None, Resume(ORDERS, LAKE))
"""None: a record that nobody understands."""


@pytest.fixture
def topic(config: KafkaConfig, kept_topic: str) -> str:
    producer = durable_producer(config, {})
    for command in COMMANDS:
        producer.produce(kept_topic, Control("7f", command).encode() if command is not None else b"from the future")
    producer.flush()
    return kept_topic


def test_a_destination_is_given_its_own_commands_in_order_and_the_place_of_all(config: KafkaConfig, topic: str) -> None:
    tail = Tail(config, topic, 0)
    reader, found = CommandReader(tail, LAKE), []

    def all_read() -> bool:
        found.extend(reader.new())
        return len(found) >= len(COMMANDS)

    eventually(all_read, what="the commands")
    tail.close()

    assert found == [(0, Pause(ORDERS)), (1, None), (2, None), (3, None), (4, Resume(ORDERS, LAKE))]


@pytest.mark.parametrize(
    ("control", "first"), [(None, 5), (3, 3), (5, 5), (9, 5)], ids=["none done", "some", "all", "topic made anew"]
)
def test_a_destination_goes_on_after_the_last_command_that_it_did(
    config: KafkaConfig, topic: str, control: int | None, first: int
) -> None:
    stored = replace(Progress.fresh(LogId("log")), control=control)

    with KafkaLog(config) as log:
        assert first_command_of(log, topic, stored) == first


def test_a_new_destination_does_nothing_that_was_asked_before_its_first_start(config: KafkaConfig, topic: str) -> None:
    with KafkaLog(config) as log:
        assert first_command_of(log, topic, None) == len(COMMANDS)
