"""The pipeline's log on Kafka: topics made, measured and read by offset.

Both stages and `status` use it for the small topics (checkpoints, schemas, feedback, control). Rows are read by Spark
and written by capture's producer, never here. Every topic has one partition.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

import stamina
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec

from schemas.connections import KafkaConfig
from schemas.errors import ConfigError, LogError, Retry
from schemas.failpoints import failpoint
from schemas.wire import NotOurRecord

T = TypeVar("T")

_POLL_SECONDS = 0.5
MEET_SECONDS = 2.0
_SEGMENT_MS = 600_000
_SEGMENTS = 8
"""Kafka deletes and compacts whole segments, and never the newest. By its own settings one lasts a week, and so would
records whose time is up after an hour, and every feedback."""


class BrokerUnreachable(LogError):
    """No broker answers."""

    retry = Retry.TIMED
    solution = "Start the broker, or correct `kafka.bootstrap_servers` and the network between."


class LeaderMissing(BrokerUnreachable):
    """A broker answers, but a partition has no leader just now: a restart, or an election."""


class AnswerLost(BrokerUnreachable):
    """The connection broke after a question was asked."""


class TopicMissing(LogError):
    """A topic of the pipeline is not there."""

    solution = (
        "If it was deleted, run `penstock resync TABLE`; if this is another cluster, correct `kafka.bootstrap_servers`."
    )


class TopicExists(LogError):
    """A topic that must be new is there already."""


class KafkaRefused(LogError):
    """The broker answered with an error that penstock has no other name for."""

    solution = (
        "Look at the broker's log; check permissions and quotas of this client, and max.message.bytes of the topics "
        "against `kafka.max_record`."
    )


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
            raise NotOurRecord(
                f"{error.reason} It stands on topic {self.topic} at offset {self.offset}.", solution=error.solution
            ) from None


_AWAY = {
    KafkaError._TRANSPORT,  # noqa: SLF001 -- confluent-kafka names its local errors so
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError._RESOLVE,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
    KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
}
_LEADERLESS = {
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError._NOENT,  # noqa: SLF001 -- "no leaders found": also said of a topic that does not exist
}
_MISSING = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
}


def log_error(error: KafkaError, what: str) -> LogError:
    """The one place where Kafka's error codes become ours."""
    if error.code() in _AWAY:
        return BrokerUnreachable(f"No Kafka broker answered while {what} ({error.name()}).")
    if error.code() in _LEADERLESS:
        return LeaderMissing(f"A partition has no leader while {what} ({error.name()}).")
    if error.code() in _MISSING:
        return TopicMissing(f"A topic does not exist: {what}.")
    if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
        return TopicExists(f"A topic exists already: {what}.")
    return KafkaRefused(f"Kafka refused {what}: {error.str()}.")


@contextmanager
def settings_told() -> Iterator[None]:
    """What librdkafka says of a setting that it does not take: it names the setting, and may repeat the value."""
    try:
        yield
    except (KafkaException, TypeError, ValueError) as error:
        known = re.search(r'configuration property:? "([\w.]+)"', str(error))
        raise ConfigError(
            f"kafka.client: librdkafka does not take {f'the setting {known[1]}' if known else 'its settings'}.",
            solution="Correct [kafka.client]; its keys are the settings of librdkafka.",
        ) from None


def durable_producer(config: KafkaConfig, settings: Mapping[str, object]) -> Producer:
    """An idempotent producer that has met its broker: one that has not asks for its id half a second later."""
    with settings_told():
        producer = Producer({**durable_settings(config), **settings})
    with suppress(KafkaException):  # one that is away is waited for when something is sent
        producer.list_topics(timeout=MEET_SECONDS)
    return producer


def durable_settings(config: KafkaConfig) -> dict[str, str | int | float | bool]:
    """Of every producer of penstock."""
    return config.client_settings() | {"acks": "all", "enable.idempotence": True, "log_level": 0}


class KafkaLog:
    """One client of the small topics. Not safe for several threads."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._patience = config.patience.total_seconds()
        with settings_told():
            self._admin = AdminClient(config.client_settings() | {"log_level": 0})
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

    def topics(self) -> set[str]:
        """Every topic of the cluster; also the way to ask whether a broker is there at all."""
        try:
            return set(self._admin.list_topics(timeout=self._patience).topics)
        except KafkaException as error:
            raise log_error(error.args[0], f"asking {self._config.bootstrap_servers} for its topics") from error

    def largest_request(self) -> int | None:
        """The most bytes that every broker takes at once; None where this client may not ask."""
        try:
            brokers = self._admin.list_topics(timeout=self._patience).brokers
            wanted = [ConfigResource(ConfigResource.Type.BROKER, str(broker)) for broker in brokers]
            told = self._admin.describe_configs(wanted, request_timeout=self._patience).values()
            return min(int(each.result(self._patience)["socket.request.max.bytes"].value) for each in told)
        except KafkaException:
            return None

    def create(self, topic: str, kind: TopicKind) -> None:
        """Makes a topic; raises TopicExists where it is there already."""
        self._made(self._creating([topic], kind)[topic], topic)

    def ensure(self, topic: str, kind: TopicKind) -> None:
        self.ensure_all([topic], kind)

    def ensure_all(self, topics: Iterable[str], kind: TopicKind) -> None:
        """Makes those that are not there: all at once, which takes hardly longer than one."""
        for topic, future in self._creating(topics, kind).items():
            with suppress(TopicExists):
                self._made(future, topic)

    def _made(self, future: Future[None], topic: str) -> None:
        try:
            future.result(self._patience)
        except KafkaException as error:
            raise log_error(error.args[0], f"creating the topic {topic}") from error
        failpoint("topic.created", BrokerUnreachable)

    def _creating(self, topics: Iterable[str], kind: TopicKind) -> dict[str, Future[None]]:
        failpoint("topic.creating", BrokerUnreachable)
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
        return self._admin.create_topics(wanted, operation_timeout=self._patience)

    def delete(self, topics: Iterable[str]) -> None:
        for topic, future in self._admin.delete_topics(list(topics), operation_timeout=self._patience).items():
            try:
                future.result(self._patience)
            except KafkaException as error:
                if error.args[0].code() not in _MISSING:
                    raise log_error(error.args[0], f"deleting the topic {topic}") from error

    def ends(self, topics: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """The offset after the last record of each topic."""
        return self._offsets(topics, OffsetSpec.latest())

    def begins(self, topics: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """The offset of the oldest record that retention has left."""
        return self._offsets(topics, OffsetSpec.earliest())

    def _offsets(self, topics: Iterable[str], spec: OffsetSpec) -> dict[str, tuple[int, ...]]:
        """Waits out an election and a broken connection; a topic that is not there at all is told at once."""
        wanted = {TopicPartition(topic, 0): spec for topic in topics}
        passing = (LeaderMissing, AnswerLost)
        for attempt in stamina.retry_context(on=passing, attempts=None, timeout=self._patience, wait_max=1.0):
            with attempt:
                try:
                    return self._asked_offsets(wanted)
                except LeaderMissing:
                    for absent in {partition.topic for partition in wanted} - self.topics():
                        raise TopicMissing(f"Topic {absent} does not exist.") from None
                    raise
        raise AssertionError("a retry ends with a result or an error")

    def _asked_offsets(self, wanted: dict[TopicPartition, OffsetSpec]) -> dict[str, tuple[int, ...]]:
        if not wanted:
            return {}
        found: dict[str, tuple[int, ...]] = {}
        for partition, future in self._admin.list_offsets(wanted, request_timeout=self._patience).items():
            try:
                told = future.result(self._patience)
            except KafkaException as error:
                raise log_error(error.args[0], f"asking for the offsets of {partition.topic}") from error
            if told.offset < 0:  # librdkafka forgets the error of a question whose connection broke
                raise AnswerLost(f"The connection to Kafka broke while asking for the offsets of {partition.topic}.")
            found[partition.topic] = (told.offset,)
        return found

    def read(self, topic: str, start: int, end: int) -> Iterator[Record]:
        """The records with start <= offset < end that retention and compaction have left, in order."""
        if start >= end:
            return
        consumer = self._assign(topic, start)
        try:
            yield from self._from(consumer, topic, end)
        finally:
            if self._consumer is consumer:
                consumer.unassign()  # or it would go on fetching

    def _from(self, consumer: Consumer, topic: str, end: int) -> Iterator[Record]:
        silent = 0.0
        while True:
            message = consumer.poll(_POLL_SECONDS)
            error = message.error() if message is not None else None
            if message is None or (error is not None and error.code() in _AWAY | _LEADERLESS):
                silent += _POLL_SECONDS
                if silent >= self._patience:
                    raise BrokerUnreachable(f"No Kafka broker answered while reading {topic}.")
                continue
            silent = 0.0
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                    return
                raise log_error(error, f"reading {topic}")
            if _offset(message) >= end:
                return
            yield _record(message)
            if _offset(message) == end - 1:
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


class Tail:
    """New records of one small topic as they come, without waiting."""

    def __init__(self, config: KafkaConfig, topic: str, start: int = OFFSET_BEGINNING) -> None:
        self._topic = topic
        self._consumer = Consumer(
            config.client_settings()
            | {"group.id": "penstock", "enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0}
        )
        self._consumer.assign([TopicPartition(topic, 0, start)])

    def new(self) -> Iterator[Record]:
        """What has arrived since the last call. A broker that is away means nothing new, not an error."""
        while (message := self._consumer.poll(0)) is not None:
            error = message.error()
            if error is None:
                yield _record(message)
            elif error.code() in _MISSING:
                raise log_error(error, f"reading {self._topic}")

    def close(self) -> None:
        self._consumer.close()


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None  # noqa: S101 -- a delivered message has one
    return offset


def _record(message: Message) -> Record:
    topic = message.topic() or ""
    return Record(_offset(message), _bytes(message.key()), _bytes(message.value()), message.timestamp()[1], topic)


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
