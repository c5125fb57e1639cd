"""Exact offset ranges of one or many topics, to Arrow in this process. Ranges in, raw records out.

Kafka's C client reads them, 2,000 at a time, and their values go to Arrow without a line of Python for each. A Spark
job and the way from its JVM took four times the CPU. A range that has a hole comes without it: counts come from the
checkpoint, and are compared with what was read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import groupby
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from apply_spark.arrow_decode import RawRecords
from apply_spark.errors import TopicCut
from apply_spark.read import OffsetRange
from schemas.connections import KafkaConfig
from schemas.errors import LogError
from stores.kafka_errors import AWAY, LEADERLESS, BrokerUnreachable, log_error
from stores.kafka_log import ASK_SECONDS, MEET_SECONDS, record_offset

T = TypeVar("T")

_BATCH = 2_000
_POLL_SECONDS = 0.5
_CONSUMER: dict[str, Any] = {
    "group.id": "penstock",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",  # or it would go on somewhere else in the topic
    "isolation.level": "read_uncommitted",  # nobody's open transaction is waited for, as in Spark
    "check.crcs": True,  # as Spark's client does
    "fetch.wait.max.ms": 10,  # what is read is there; the next read waits for this one's last fetch
    "fetch.message.max.bytes": 2 * 1024**2,
    "queued.max.messages.kbytes": 4096,  # what may be fetched beyond a range, and is thrown away
    "fetch.queue.backoff.ms": 2,  # by itself it rests for a second whenever that much waits
    "log_level": 0,
}


class ReadStopped(LogError):
    """Apply is to end, and nobody asks for these records any more."""

    solution = "None is needed."


class ReadingThread:
    """A thread with a client of its own. `with` ends it, and gives up what it reads, maybe from a silent broker."""

    def __init__(self, kafka: KafkaConfig, name: str) -> None:
        self._ranges = RangeReader(kafka)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ranges.stop()
        self._pool.shutdown(cancel_futures=True)
        self._ranges.close()

    def submit(self, work: Callable[[RangeReader], T]) -> Future[T]:
        return self._pool.submit(work, self._ranges)


class RangeReader:
    """One client. Not safe for several threads, except `stop`."""

    def __init__(self, kafka: KafkaConfig) -> None:
        self._settings = kafka.client_settings() | _CONSUMER
        self._patience = kafka.patience.total_seconds()
        self._consumer: Consumer | None = None
        self._met: set[str] = set()
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Ends the read under way, which may wait for a silent broker, with ReadStopped."""
        self._stopped.set()

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def read(self, ranges: Mapping[str, OffsetRange]) -> dict[str, RawRecords]:
        """The records of each topic, whose range was checked. TopicCut: it is not there any more all the same."""
        found = {topic: RawRecords(topic, range_, []) for topic, range_ in ranges.items()}
        left = {topic: range_ for topic, range_ in ranges.items() if range_.start < range_.end}
        if left:
            try:
                self._read(left, found)
            finally:
                if self._consumer is not None:
                    self._consumer.unassign()  # or it would go on fetching
        return found

    def _read(self, left: dict[str, OffsetRange], found: dict[str, RawRecords]) -> None:
        consumer = self._assigned(left)
        heard = asked = time.monotonic()
        while left:
            if self._stopped.is_set():
                raise ReadStopped(f"Reading {min(left)} was stopped.")
            before = set(left)
            most = sum(range_.end - range_.start for range_ in left.values())  # or it would wait for more
            messages = consumer.consume(min(most, _BATCH), _POLL_SECONDS)
            is_told = any(map(Message.error, messages))
            records = [message for message in messages if message.error() is None] if is_told else messages
            for topic, some in groupby(records, Message.topic):
                if topic in left:
                    _take(list(some), left, found[topic])
            if is_told:  # after the records, which came before the end of their topic
                for message in messages:
                    _heed(message, left)
            if left and (done := before - left.keys()):  # or it would go on fetching what nobody asks for
                consumer.incremental_unassign([TopicPartition(topic, 0) for topic in done])
            now = time.monotonic()
            if records:
                heard = asked = now
            elif left and now - heard > self._patience:
                raise BrokerUnreachable(f"No Kafka broker answered while reading {min(left)}.")
            elif left and now - asked > ASK_SECONDS:
                self.close()
                consumer, asked = self._assigned(left), now

    def _assigned(self, ranges: Mapping[str, OffsetRange]) -> Consumer:
        if self._consumer is None:
            self._consumer, self._met = Consumer(self._settings), set()
        with suppress(KafkaException):  # one that is away is waited for when something is read
            for topic in ranges.keys() - self._met:
                self._consumer.list_topics(topic, timeout=MEET_SECONDS)  # it looks one up once a second by itself
                self._met.add(topic)
        self._consumer.assign([TopicPartition(topic, 0, range_.start) for topic, range_ in ranges.items()])
        return self._consumer


def _take(messages: list[Message], left: dict[str, OffsetRange], found: RawRecords) -> None:
    """Values of one topic, in its order; those beyond the range are not asked for."""
    start, end = left[found.topic]
    reached = record_offset(messages[-1]) + 1
    if reached > end or record_offset(messages[0]) < start:
        messages = [message for message in messages if start <= record_offset(message) < end]
    found.values.append(pa.array(map(Message.value, messages), pa.binary()))
    if reached < end:
        left[found.topic] = OffsetRange(max(start, reached), end)
    else:
        del left[found.topic]


def _heed(message: Message, left: dict[str, OffsetRange]) -> None:
    """What the client tells beside the records is obeyed, or raised."""
    error, topic = message.error(), message.topic() or ""
    match error.code() if error is not None else None:
        case None | KafkaError.GROUP_AUTHORIZATION_FAILED:  # it is in no group: the client wants the name of one
            pass
        case KafkaError._PARTITION_EOF:  # noqa: SLF001 -- confluent-kafka names its local errors so
            if topic in left and record_offset(message) >= left[topic].end:  # what stood there is no record
                del left[topic]
        case KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
            raise TopicCut(
                topic,
                "does not have all records any more that it had when the read began.",
                solution="Run `penstock resync TABLE`.",
            )
        case KafkaError._BAD_MSG:  # noqa: SLF001 -- the client goes on behind them
            raise TopicCut(
                topic,
                "has records whose checksum is wrong: they were damaged on the disk of the broker, or on the way.",
                solution="Look after that disk. If it comes again, run `penstock resync TABLE`.",
            )
        case code if error is not None and code not in AWAY | LEADERLESS:
            raise log_error(error, f"reading {topic}", topic=topic, operation="Read")
