"""A Kafka as large as the protocol sees it: topics that only grow, and producers whose records land later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from schemas.identifiers import Epoch
from stores.kafka_errors import TopicExists, TopicMissing
from stores.kafka_log import Record, TopicKind


class Change(NamedTuple):
    """A record of a change topic as `apply_spark.records.records` gives it, or, with `op` r, of a copy topic."""

    commit_lsn: int
    ordinal: int
    epoch: Epoch
    op: str
    before: tuple[Any, ...] | None
    after: tuple[Any, ...] | None
    unchanged: tuple[str, ...] = ()


class Broker:
    """Stands for every KafkaLog of the pipeline."""

    def __init__(self) -> None:
        self.logs: dict[str, list[Any]] = {}

    def topics(self) -> set[str]:
        return set(self.logs)

    def create(self, topic: str, _kind: TopicKind = TopicKind.RECORDS) -> None:
        if topic in self.logs:
            raise TopicExists(f"A topic exists already: {topic}.")
        self.logs[topic] = []

    def ensure_all(self, topics: Iterable[str], _kind: TopicKind = TopicKind.RECORDS) -> None:
        for topic in topics:
            self.logs.setdefault(topic, [])

    def begins(self, topics: Iterable[str]) -> dict[str, tuple[int, ...]]:
        return {topic: (0,) for topic in topics if self._log(topic) is not None}

    def ends(self, topics: Iterable[str]) -> dict[str, tuple[int, ...]]:
        return {topic: (len(self._log(topic)),) for topic in topics}

    def read(self, topic: str, start: int, end: int) -> Iterator[Record]:
        first = max(0, start)
        for offset, value in enumerate(self._log(topic)[first:end], first):
            yield Record(offset, None, value, 0)

    def last(self, topic: str, count: int) -> list[Record]:
        end = len(self._log(topic))
        return list(self.read(topic, end - count, end))

    def append(self, topic: str, record: Any) -> int:  # noqa: ANN401 -- bytes on small topics, changes on others
        self._log(topic).append(record)
        return len(self.logs[topic]) - 1

    def _log(self, topic: str) -> list[Any]:
        if topic not in self.logs:
            raise TopicMissing(f"Topic {topic} does not exist.")
        return self.logs[topic]


class BrokerTail:
    """New records of a small topic. What has arrived by now is the explorer's choice: `arriving` more may come."""

    def __init__(self, broker: Broker, topic: str, start: int = 0) -> None:
        self._broker = broker
        self._topic = topic
        self.next = start
        self.arriving: int | None = None
        """None: all that is there."""

    @property
    def waiting(self) -> int:
        return len(self._broker.logs[self._topic]) - self.next

    def new(self) -> Iterator[Record]:
        count = self.waiting if self.arriving is None else min(self.arriving, self.waiting)
        for record in list(self._broker.read(self._topic, self.next, self.next + count)):
            self.next += 1
            yield record


class Sending:
    """One producer. Records land in the order of their topic, when the explorer says so, or with `flush`; those of a
    process that died may land, too, or never."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.queues: dict[str, list[Change]] = {}

    def send(self, topic: str, change: Change) -> None:
        self.queues.setdefault(topic, []).append(change)

    def waiting(self) -> list[str]:
        return [topic for topic, queue in self.queues.items() if queue]

    def land(self, topic: str) -> None:
        self._broker.append(topic, self.queues[topic].pop(0))

    def land_twice(self, topic: str) -> None:
        """A retry that the broker did not know again."""
        self._broker.append(topic, self.queues[topic][0])
        self.land(topic)

    def flush(self) -> None:
        for topic in self.waiting():
            while self.queues[topic]:
                self.land(topic)

    def sizes(self) -> Counter[str]:
        return Counter({topic: len(queue) for topic, queue in self.queues.items() if queue})
