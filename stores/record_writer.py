"""Single records to small topics, each waited for: checkpoints, schemas, commands."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaError, KafkaException, Message

from schemas.connections import KafkaConfig
from stores.kafka_errors import BrokerUnreachable, log_error
from stores.kafka_log import durable_producer, what_ended

_SLICE_SECONDS = 0.2


class RecordWriter:
    """One idempotent producer. All goes to partition 0: nobody reads one that somebody has added."""

    def __init__(self, kafka: KafkaConfig, settings: Mapping[str, object]) -> None:
        self._producer = durable_producer(
            kafka, {"linger.ms": 0, "message.max.bytes": int(kafka.max_record), **settings}
        )

    def write(
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        seconds: float | None,
        waiting: Callable[[], None] = lambda: None,
    ) -> int:
        """Returns the record's offset when Kafka has it. Waits so long, or without an end, and calls `waiting` then."""
        offsets: list[int] = []
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)
            else:
                offsets.append(message.offset() or 0)

        until = None if seconds is None else time.monotonic() + seconds
        try:
            self._producer.produce(topic, value, key, partition=0, on_delivery=delivered)
            while self._producer.flush(_SLICE_SECONDS) > 0:
                if until is not None and time.monotonic() > until:
                    raise BrokerUnreachable(f"No Kafka broker took a record on {topic} within {seconds:g} s.")
                waiting()
        except KafkaException as error:  # the producer had to end
            failures.insert(0, what_ended(self._producer, error.args[0]))
        if failures:
            raise log_error(failures[0], f"a record on {topic}", topic=topic)
        return offsets[-1]
