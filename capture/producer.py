"""Bounded sending: at most so many bytes wait for Kafka; while they do, the reader waits and the slot is kept alive.

A record that Kafka did not take stops the process before the next checkpoint: a checkpoint never covers a hole.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from pydantic import ByteSize

from schemas.connections import KafkaConfig
from schemas.errors import LogError
from schemas.pg_types.pg_type import ValueNotCarried
from stores.kafka_log import log_error

_SLICE_SECONDS = 0.2
_SLICES_BETWEEN_WARNINGS = 50

log = structlog.get_logger(__name__)


class BoundedProducer:
    """One idempotent producer. `alive` is called whenever it makes its caller wait."""

    def __init__(self, kafka: KafkaConfig, memory: ByteSize, alive: Callable[[], None]) -> None:
        self._alive = alive
        self._failure: LogError | None = None
        self._largest = int(kafka.max_record)
        self._producer = Producer(
            kafka.client_settings()
            | {
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 20,
                "batch.size": 1_000_000,
                "message.max.bytes": int(kafka.max_record) + 1024,
                "message.timeout.ms": 0,  # a broker that is away is waited for, with the slot kept alive
                "queue.buffering.max.kbytes": max(int(memory), int(kafka.max_record)) // 1024,
                "queue.buffering.max.messages": 500_000,
                "delivery.report.only.error": True,
                "on_delivery": self._delivered,
                "log_level": 0,
            }
        )

    def send(self, topic: str, key: bytes | None, value: bytes) -> None:
        """Queues one record; waits while the queue is full."""
        while True:
            try:
                self._producer.produce(topic, value, key)
            except BufferError:
                self._wait(f"sending to {topic}")
            except KafkaException as error:
                if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    raise ValueNotCarried(
                        f"A row needs a record of {len(value):,} bytes; {self._largest:,} are allowed.",
                        solution="Raise `kafka.max_record`, and max.message.bytes of the table's topics.",
                    ) from error
                raise log_error(error.args[0], f"sending to {topic}") from error
            else:
                return

    def flush(self) -> None:
        """Returns when Kafka has every record that was sent; raises if it refused one."""
        waited = 0
        while self._producer.flush(_SLICE_SECONDS) > 0:
            self._alive()
            waited += 1
            if waited % _SLICES_BETWEEN_WARNINGS == 0:
                log.warning(
                    "waiting for kafka", waited_seconds=round(waited * _SLICE_SECONDS), unsent=len(self._producer)
                )
        self.raise_failure()

    def poll(self) -> None:
        self._producer.poll(0)
        self.raise_failure()

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def drop_unsent(self) -> None:
        """For a stop inside a transaction: what no checkpoint will cover need not arrive."""
        self._producer.purge()
        self._producer.poll(0)
        self._failure = None

    def _wait(self, what: str) -> None:
        self._producer.poll(_SLICE_SECONDS)
        self.raise_failure()
        self._alive()
        log.debug("queue to kafka is full", what=what)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._failure is None:
            self._failure = log_error(error, f"a record on {message.topic()}")
