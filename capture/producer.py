"""Bounded sending: at most so many bytes wait for Kafka; while they do, the caller waits and is kept alive.

A delivery callback would take and give the interpreter lock for each record, and cost more than the sending: there is
none. Instead a record that Kafka refuses ends the producer (its gapless guarantee), which `flush` raises; and whoever
writes a checkpoint compares the ends of the topics with what was sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, cast

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer
from pydantic import ByteSize

from schemas.connections import KafkaConfig
from schemas.errors import LogError
from schemas.pg_types.pg_type import ValueNotCarried
from stores.kafka_log import log_error

Records: TypeAlias = list[dict[str, bytes | None]]
"""Keys and values, as produce_batch takes them."""

_SLICE_SECONDS = 0.2
_SLICES_BETWEEN_WARNINGS = 50
_ERROR = "_error"
"""Where produce_batch writes why it did not take a record."""

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
                "enable.gapless.guarantee": True,
                "compression.type": "lz4",
                "linger.ms": 20,
                "batch.size": 1_000_000,
                "message.max.bytes": int(kafka.max_record) + 1024,
                "message.timeout.ms": 0,  # a broker that is away is waited for
                "queue.buffering.max.kbytes": max(int(memory), int(kafka.max_record)) // 1024,
                "queue.buffering.max.messages": 500_000,
                "error_cb": self._failed,
                "log_level": 0,
            }
        )

    def send(self, topic: str, key: bytes | None, value: bytes) -> None:
        """Queues one record behind those before it; waits while the queue is full."""
        while True:
            try:
                self._producer.produce(topic, value, key)
            except BufferError:
                self._wait(self._producer.poll)
            except KafkaException as error:
                raise self._refusal(error.args[0], topic, len(value)) from error
            else:
                return

    def send_batch(self, topic: str, records: Records) -> None:
        """Queues all of them, in any order: what a full queue refused is sent again."""
        while self._producer.produce_batch(topic, records, partition=0) < len(records):
            records = self._left_over(topic, records)
            self._wait(self._producer.poll)
        self.poll()

    def flush(self) -> None:
        """Returns when Kafka has every record that was sent; raises if it refused one."""
        waited = 0
        while len(self._producer) > 0:
            self._wait(self._producer.flush)
            waited += 1
            if waited % _SLICES_BETWEEN_WARNINGS == 0:
                log.warning(
                    "waiting for kafka", waited_seconds=round(waited * _SLICE_SECONDS), unsent=len(self._producer)
                )
        self.poll()

    def poll(self) -> None:
        self._producer.poll(0)
        if self._failure is not None:
            raise self._failure

    def drop_unsent(self) -> None:
        """For a stop inside a transaction: what no checkpoint will cover need not arrive. The producer's last act."""
        self._producer.purge()

    def _left_over(self, topic: str, records: Records) -> Records:
        again = []
        for record in records:
            error = cast("KafkaError | None", record.pop(_ERROR, None))
            if error is None:
                continue
            if error.code() != KafkaError._QUEUE_FULL:  # noqa: SLF001 -- confluent-kafka names its local errors so
                raise self._refusal(error, topic, len(record["value"] or b""))
            again.append(record)
        return again

    def _refusal(self, error: KafkaError, topic: str, size: int) -> ValueNotCarried | LogError:
        if error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
            return log_error(error, f"sending to {topic}")
        return ValueNotCarried(
            f"A row needs a record of {size:,} bytes; {self._largest:,} are allowed.",
            solution="Raise `kafka.max_record`, and max.message.bytes of the table's topics.",
        )

    def _wait(self, for_a_while: Callable[[float], int]) -> None:
        try:
            for_a_while(_SLICE_SECONDS)
        except KafkaException as error:  # a producer that has ended
            raise log_error(error.args[0], "a record") from error
        self.poll()
        self._alive()

    def _failed(self, error: KafkaError) -> None:
        """Called for whatever librdkafka notices; a broker that is away is no failure."""
        if error.fatal() and self._failure is None:
            self._failure = log_error(error, "a record")
