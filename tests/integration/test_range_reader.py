"""Exact ranges of topics, by one client that goes from one to another: what was fetched for the read before, or beyond
a range, is never part of the next."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from confluent_kafka import Producer

from apply_spark.errors import TopicCut
from apply_spark.range_reader import RangeReader, ReadingThread, ReadStopped
from apply_spark.read import OffsetRange
from console.local_stack.kafka import LocalKafka
from schemas.connections import KafkaConfig
from stores.kafka_errors import BrokerUnreachable
from stores.kafka_log import MEET_SECONDS, KafkaLog, TopicKind, durable_producer
from tests.support.eventually import eventually
from tests.support.processes import frozen

RECORDS = 30_000
TOPICS = ("ranges.a", "ranges.b", "ranges.c")


@pytest.fixture(scope="module")
def filled(kafka: LocalKafka) -> KafkaConfig:
    """Every value says where it stands; larger than what is fetched at once, so that reads are cut everywhere."""
    config = KafkaConfig(bootstrap_servers=kafka.bootstrap_servers)
    with KafkaLog(config) as log:
        log.ensure_all(TOPICS, TopicKind.RECORDS)
    producer = durable_producer(config, {"compression.type": "lz4"})
    for topic in TOPICS:
        for offset in range(RECORDS):
            producer.produce(topic, value(topic, offset))
        producer.flush()
    return config


@pytest.fixture
def reader(filled: KafkaConfig) -> Iterator[RangeReader]:
    made = RangeReader(filled)
    yield made
    made.close()


def value(topic: str, offset: int) -> bytes:
    return f"{topic} {offset} ".encode() * 10


def values(reader: RangeReader, ranges: dict[str, OffsetRange]) -> dict[str, list[bytes]]:
    found = reader.read(ranges)
    return {topic: [each for array in raw.values for each in array.to_pylist()] for topic, raw in found.items()}


def test_any_ranges_one_after_another_have_their_records_and_no_others(reader: RangeReader) -> None:
    choices = random.Random(4)  # noqa: S311 -- a seed, not a secret
    for _ in range(60):
        ranges = {}
        for topic in choices.sample(TOPICS, choices.randint(1, len(TOPICS))):
            start = choices.randrange(RECORDS)
            ranges[topic] = OffsetRange(start, min(RECORDS, start + choices.choice([0, 1, 10, 1_000, 20_000])))

        found = values(reader, ranges)

        assert found == {topic: [value(topic, each) for each in range(*range_)] for topic, range_ in ranges.items()}


def test_a_range_that_ends_with_what_is_no_record_is_read_to_its_end(filled: KafkaConfig, reader: RangeReader) -> None:
    """A transaction that somebody else aborted: its records and its end have offsets; the end is no record."""
    topic = "ranges.strangers"
    with KafkaLog(filled) as log:
        log.create(topic, TopicKind.RECORDS)
        settings = {"bootstrap.servers": filled.bootstrap_servers, "transactional.id": "stranger", "log_level": 0}
        stranger = Producer(settings)
        stranger.init_transactions(30)
        stranger.begin_transaction()
        stranger.produce(topic, b"theirs")
        stranger.flush()
        stranger.abort_transaction(30)
        eventually(lambda: log.ends([topic]) == {topic: (2,)}, what="the end of the transaction")

    found = values(reader, {topic: OffsetRange(0, 2)})

    assert found == {topic: [b"theirs"]}


def test_a_topic_that_was_cut_meanwhile_is_told(reader: RangeReader) -> None:
    with pytest.raises(TopicCut, match=r"ranges\.b does not have all records any more"):
        reader.read({"ranges.b": OffsetRange(RECORDS + 5, RECORDS + 6)})


def test_records_that_a_disk_has_damaged_are_told_and_not_passed_over(
    filled: KafkaConfig, reader: RangeReader, kafka: LocalKafka
) -> None:
    topic = "ranges.damaged"
    with KafkaLog(filled) as log:
        log.create(topic, TopicKind.RECORDS)
    producer = durable_producer(filled, {})
    for number in range(2):
        producer.produce(topic, value(topic, number))
        producer.flush()  # a batch each
    with (kafka.directory / "data" / f"{topic}-0" / f"{0:020}.log").open("r+b") as segment:
        segment.seek(segment.read().index(value(topic, 0)))
        segment.write(value(topic, 9))

    with pytest.raises(TopicCut, match=r"ranges\.damaged has records whose checksum is wrong"):
        reader.read({topic: OffsetRange(0, 2)})


def test_a_silent_broker_is_waited_for_and_told(filled: KafkaConfig, kafka: LocalKafka) -> None:
    reader = RangeReader(filled.model_copy(update={"patience": timedelta(seconds=2)}))
    values(reader, {"ranges.a": OffsetRange(0, 1)})

    with frozen(kafka.pid), pytest.raises(BrokerUnreachable, match=r"while reading ranges\.a"):
        reader.read({"ranges.a": OffsetRange(0, 10)})

    assert len(values(reader, {"ranges.a": OffsetRange(0, 10)})["ranges.a"]) == 10
    reader.close()


def test_a_thread_that_waits_for_a_silent_broker_ends_at_once(filled: KafkaConfig, kafka: LocalKafka) -> None:
    with frozen(kafka.pid):
        with ReadingThread(filled, "reading") as thread:
            reading = thread.submit(lambda reader: reader.read({"ranges.a": OffsetRange(0, 10)}))
            began = time.monotonic()
        took = time.monotonic() - began

    with pytest.raises(ReadStopped):
        reading.result(0)
    assert took < MEET_SECONDS + 3
