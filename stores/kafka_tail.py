"""One small topic as it grows: what both stages follow, checkpoints, commands and feedback."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from schemas.connections import KafkaConfig
from stores.kafka_errors import DENIED, MISSING, ClientStuck, log_error
from stores.kafka_log import Record, made_record, record_offset

_SILENT_SECONDS = 30.0
_LOOK_SECONDS = 1.0


class Tail:
    """New records of one small topic as they come, without waiting.

    Others report clients that get nothing more after a broker came back, for good and without an error. So after a
    silence the broker is asked how far the topic reaches."""

    def __init__(
        self,
        config: KafkaConfig,
        topic: str,
        start: int = OFFSET_BEGINNING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topic = topic
        self._clock = clock
        self._looked = clock()
        self._next = start
        self._missed: int | None = None
        """The record that should have come by the last look."""
        self._consumer = Consumer(
            config.client_settings()
            | {"group.id": "penstock", "enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0}
        )
        self._consumer.assign([TopicPartition(topic, 0, start)])

    def new(self) -> Iterator[Record]:
        """What has arrived since the last call. A broker that is away means nothing new, not an error.

        ClientStuck: it is there and has more, which does not come."""
        while (message := self._consumer.poll(0)) is not None:
            error = message.error()
            if error is None:
                self._next, self._looked, self._missed = record_offset(message) + 1, self._clock(), None
                yield made_record(message)
            elif error.code() in MISSING | DENIED:
                raise log_error(error, f"reading {self._topic}", topic=self._topic, operation="Read")
        if self._clock() - self._looked > _SILENT_SECONDS:
            self._look()

    def _look(self) -> None:
        """Twice before it is said: what has just been written is on its way."""
        self._looked = self._clock()
        try:
            asked = self._consumer.get_watermark_offsets(TopicPartition(self._topic, 0), timeout=_LOOK_SECONDS)
        except KafkaException:
            return  # it is away
        begin, end = asked or (0, 0)
        first = max(begin, self._next)
        if first >= end:
            self._missed = None
        elif self._missed is None or self._missed < begin:
            self._missed = first
        else:
            raise ClientStuck(
                f"Topic {self._topic} ends at offset {end}, and Kafka's client has given nothing from {first} on for "
                f"{_SILENT_SECONDS:g} s."
            )

    def close(self) -> None:
        self._consumer.close()
