"""The pipeline's log on Kafka: topics made, measured and read by offset.

Both stages and `status` use it for the small topics (checkpoints, schemas, feedback, control). Rows are read by apply's
RangeReader or by Spark and written by capture's producer, never here. Every topic has one partition.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import stamina
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, ConfigResource, NewTopic, OffsetSpec

from schemas.connections import KafkaConfig
from schemas.errors import LogError
from schemas.failpoints import failpoint
from schemas.wire import NotOurRecord
from stores.kafka_errors import (
    AWAY,
    LEADERLESS,
    STRANGERS,
    AnswerLost,
    BrokerUnreachable,
    LeaderMissing,
    NotLetIn,
    TopicExists,
    TopicMissing,
    log_error,
    settings_told,
)

T = TypeVar("T")

_POLL_SECONDS = 0.5
_GRACE_SECONDS = 1.0
"""The client itself gives up a question first, and says why."""
MEET_SECONDS = 2.0
_SEGMENT_MS = 600_000
_SEGMENTS = 8
"""Kafka deletes and compacts whole segments, and never the newest. By its own settings one lasts a week, and so would
records whose time is up after an hour, and every feedback."""
_LEADER_SECONDS = 5.0
ASK_SECONDS = 10.0
"""A client may wait in vain, where a new question, or a new client, would be answered at once."""
_HEARD_SECONDS = 0.02
_LOOKS = 2


class TopicKind(enum.Enum):
    """How Kafka treats old records of a topic."""

    RECORDS = "records"
    LATEST = "latest by key"
    KEPT = "kept for good"


class Record(NamedTuple):
    """One record of a small topic."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    topic: str = ""

    def read(self, decode: Callable[[bytes], T]) -> T:
        """What it says. NotOurRecord, with its topic and offset: nothing that penstock wrote."""
        try:
            return decode(self.value or b"")
        except NotOurRecord as error:
            raise type(error)(
                f"{error.reason} It stands on topic {self.topic} at offset {self.offset}.", solution=error.solution
            ) from None


def durable_producer(config: KafkaConfig, settings: Mapping[str, object]) -> Producer:
    """An idempotent producer that has met its broker: one that has not asks for its id half a second later."""
    with settings_told():
        producer = Producer({**durable_settings(config), **settings})
    with suppress(KafkaException):  # one that is away is waited for when something is sent
        producer.list_topics(timeout=MEET_SECONDS)
    return producer


def what_ended(producer: Producer, error: KafkaError) -> KafkaError:
    """A producer that had to end refuses all that comes after, and tells the reason once: when it is polled."""
    try:
        producer.poll(0)
    except KafkaException as reason:
        error = reason.args[0]
    return error


def durable_settings(config: KafkaConfig) -> dict[str, str | int | float | bool]:
    """Of every producer of penstock."""
    return config.client_settings() | {"acks": "all", "enable.idempotence": True, "log_level": 0}


class KafkaLog:
    """One client of the small topics. Not safe for several threads."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._patience = config.patience.total_seconds()
        self._met = False
        self._stranger: str | None = None
        settings: Any = {"error_cb": self._noticed} | config.client_settings() | {"log_level": 0}
        with settings_told():
            self._admin = AdminClient(settings)
        self._consumer: Consumer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def cluster(self) -> ClusterMetadata:
        """Brokers and topics, as far as this client may see them; also the way to ask whether a broker is there.

        The client asks one broker, and may wait for that one though others would answer: in between it chooses anew."""
        what = f"asking {self._config.bootstrap_servers} for its topics"
        left = self._patience
        while True:
            try:
                found = self._admin.list_topics(timeout=min(left, ASK_SECONDS))
            except KafkaException as error:
                left -= ASK_SECONDS
                if error.args[0].code() == KafkaError._TIMED_OUT and left > 0:  # noqa: SLF001 -- their name for it
                    continue
                raise self._known_stranger(log_error(error.args[0], what)) from error
            self._met = True
            return found

    def topics(self) -> set[str]:
        return set(self.cluster().topics)

    def largest_request(self) -> int | None:
        """The most bytes that every broker takes at once; None where this client may not ask."""
        brokers = [ConfigResource(ConfigResource.Type.BROKER, str(broker)) for broker in self.cluster().brokers]
        told = [self.setting(broker, "socket.request.max.bytes") for broker in brokers]
        return min((int(size) for size in told if size is not None), default=None)

    def setting(self, resource: ConfigResource, name: str) -> str | None:
        """Of a broker or a topic; None where this client may not ask."""
        (asked,) = self._admin.describe_configs([resource], request_timeout=self._patience).values()
        try:
            return str(self._answer(asked, f"asking for {name}")[name].value)
        except LogError:
            return None

    def create(self, topic: str, kind: TopicKind) -> None:
        """Makes a topic; raises TopicExists where it is there already, or was made by a question without an answer."""
        if self._create([topic], kind):
            raise TopicExists(f"Topic {topic} exists already.")

    def ensure(self, topic: str, kind: TopicKind) -> None:
        self.ensure_all([topic], kind)

    def ensure_all(self, topics: Iterable[str], kind: TopicKind) -> None:
        """Makes those that are not there: all at once, which takes hardly longer than one.

        Those that are there are not asked for: it takes a right of its own, and one broker, which may be away."""
        present = self.topics()
        self._create([each for each in topics if each not in present], kind)

    def _create(self, topics: list[str], kind: TopicKind) -> set[str]:
        """Makes them; those that were there already.

        The client may wait for a controller that it knows and never ask it, until its time is up: it is told anew."""
        failpoint("topic.creating", BrokerUnreachable)
        there: set[str] = set()
        if not topics:
            return there
        for attempt in stamina.retry_context(on=BrokerUnreachable, attempts=None, timeout=self._patience, wait_max=1.0):
            with attempt:
                for topic, future in self._creating(topics, kind).items():
                    try:
                        self._answer(future, f"creating the topic {topic}", topic, "Create")
                    except TopicExists:
                        there.add(topic)
        self._wait_until_heard_of(set(topics))
        for _ in set(topics) - there:
            failpoint("topic.created", BrokerUnreachable)
        return there

    def _wait_until_heard_of(self, topics: set[str]) -> None:
        """The controller knows a new topic before the brokers do, under load by seconds. One that this client may not
        see is not waited for any longer: whoever asks for it is told why."""
        until = time.monotonic() + ASK_SECONDS
        while not topics <= self.topics() and time.monotonic() < until:
            time.sleep(_HEARD_SECONDS)

    def _answer(self, future: Future[T], what: str, topic: str = "", operation: str = "Describe") -> T:
        try:
            return future.result(self._patience + _GRACE_SECONDS)
        except TimeoutError:
            raise self._known_stranger(BrokerUnreachable(f"No Kafka broker answered while {what}.")) from None
        except KafkaException as error:
            found = log_error(error.args[0], what, topic=topic, operation=operation)
            raise self._known_stranger(found) from error

    def _noticed(self, error: KafkaError) -> None:
        wrong_door = "listener?" in error.str()  # in librdkafka's words: it guesses what the other side speaks
        if error.code() in STRANGERS or (wrong_door and not self._met):
            self._stranger = error.str()

    def _known_stranger(self, error: LogError) -> LogError:
        """The client says beside its answer, which is that nobody answers, why it was not let in."""
        self._admin.poll(0)
        if not isinstance(error, BrokerUnreachable) or self._stranger is None:
            return error
        told, self._stranger = self._stranger, None
        return NotLetIn(f"Kafka at {self._config.bootstrap_servers} and this client do not come together: {told}.")

    def _creating(self, topics: list[str], kind: TopicKind) -> dict[str, Future[None]]:
        settings = {
            "max.message.bytes": str(int(self._config.max_record)),
            "message.timestamp.type": "LogAppendTime",  # or retention would go by the clocks of those who write
        }
        match kind:
            case TopicKind.RECORDS:
                retention = int(self._config.retention.total_seconds() * 1000)
                segment = max(_SEGMENT_MS, retention // _SEGMENTS)
                settings |= {"cleanup.policy": "delete", "retention.ms": str(retention), "segment.ms": str(segment)}
            case TopicKind.LATEST:
                settings |= {"cleanup.policy": "compact", "segment.ms": str(_SEGMENT_MS)}
            case TopicKind.KEPT:
                settings |= {"cleanup.policy": "delete", "retention.ms": "-1"}
        wanted = [NewTopic(topic, 1, self._config.replication_factor, config=settings) for topic in topics]
        seconds = min(self._patience, ASK_SECONDS)
        return self._admin.create_topics(wanted, operation_timeout=seconds, request_timeout=seconds)

    def delete(self, topics: Iterable[str]) -> None:
        for topic, future in self._admin.delete_topics(list(topics), operation_timeout=self._patience).items():
            with suppress(TopicMissing):
                self._answer(future, f"deleting the topic {topic}", topic, "Delete")

    def ends(self, topics: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """The offset after the last record of each topic."""
        return self._offsets(topics, OffsetSpec.latest())

    def begins(self, topics: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """The offset of the oldest record that retention has left."""
        return self._offsets(topics, OffsetSpec.earliest())

    def _offsets(self, topics: Iterable[str], spec: OffsetSpec) -> dict[str, tuple[int, ...]]:
        """Waits out an election and a broken connection; a topic that is not there is told soon.

        The client waits for the leader of a topic that it does not know, or not yet: it is asked anew. A broker may
        hear of a new topic a moment after it was made: it is asked more than once."""
        wanted = {TopicPartition(topic, 0): spec for topic in topics}
        looks = 0
        for attempt in stamina.retry_context(on=BrokerUnreachable, attempts=None, timeout=self._patience, wait_max=1.0):
            with attempt:
                try:
                    return self._asked_offsets(wanted)
                except (BrokerUnreachable, TopicMissing) as error:
                    absent = {partition.topic for partition in wanted} - self.topics()
                    looks += bool(absent)
                    if absent and looks > _LOOKS:
                        raise TopicMissing(f"Topic {min(absent)} does not exist.") from None
                    if isinstance(error, TopicMissing):
                        raise LeaderMissing(f"A broker does not know of a topic. {error.reason}") from error
                    raise
        raise AssertionError("a retry ends with a result or an error")

    def _asked_offsets(self, wanted: dict[TopicPartition, OffsetSpec]) -> dict[str, tuple[int, ...]]:
        if not wanted:
            return {}
        found: dict[str, tuple[int, ...]] = {}
        seconds = min(self._patience, _LEADER_SECONDS)
        for partition, future in self._admin.list_offsets(wanted, request_timeout=seconds).items():
            what = f"asking for the offsets of {partition.topic}"
            told = self._answer(future, what, partition.topic)
            if told.offset < 0:  # librdkafka forgets the error of a question whose connection broke
                raise AnswerLost(f"The connection to Kafka broke while {what}.")
            found[partition.topic] = (told.offset,)
        return found

    def read(self, topic: str, start: int, end: int) -> Iterator[Record]:
        """The records with start <= offset < end that retention and compaction have left, in order."""
        if start >= end:
            return
        try:
            yield from self._from(topic, start, end)
        finally:
            if self._consumer is not None:
                self._consumer.unassign()  # or it would go on fetching

    def _from(self, topic: str, start: int, end: int) -> Iterator[Record]:
        consumer, silent = self._assign(topic, start), 0.0
        while True:
            message = consumer.poll(_POLL_SECONDS)
            error = message.error() if message is not None else None
            if message is None or (error is not None and error.code() in AWAY | LEADERLESS):
                silent += _POLL_SECONDS
                if silent >= self._patience:
                    raise BrokerUnreachable(f"No Kafka broker answered while reading {topic}.")
                if silent % ASK_SECONDS == 0:
                    self.close()
                    consumer = self._assign(topic, start)
                continue
            silent = 0.0
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                    return
                if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    continue  # it is in no group: the client wants the name of one
                raise log_error(error, f"reading {topic}", topic=topic, operation="Read")
            if record_offset(message) >= end:
                return
            start = record_offset(message) + 1
            yield made_record(message)
            if start == end:
                return

    def read_all(self, topic: str) -> Iterator[Record]:
        return self.read(topic, OFFSET_BEGINNING, self.ends([topic])[topic][0])

    def last(self, topic: str, count: int) -> list[Record]:
        """At most the `count` newest records."""
        end = self.ends([topic])[topic][0]
        begin = self.begins([topic])[topic][0]
        return list(self.read(topic, max(begin, end - count), end))

    def _assign(self, topic: str, start: int) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(
                self._config.client_settings()
                | {
                    "group.id": "penstock",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "earliest",
                    "fetch.wait.max.ms": 10,  # what is read is there; the next read waits for this one's last fetch
                    "log_level": 0,
                }
            )
        with suppress(KafkaException):  # one that is away is waited for when something is read
            self._consumer.list_topics(topic, timeout=MEET_SECONDS)  # it looks a new topic up once a second by itself
        self._consumer.assign([TopicPartition(topic, 0, start)])
        return self._consumer


def record_offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None  # noqa: S101 -- a delivered message has one
    return offset


def made_record(message: Message) -> Record:
    topic = message.topic() or ""
    return Record(record_offset(message), _bytes(message.key()), _bytes(message.value()), message.timestamp()[1], topic)


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
