"""Batches of copied rows to a copy topic, with a bounded number of bytes waiting for Kafka.

Copied rows have no order, so what the full queue refused of a batch is sent again. A delivery callback would take and
give the interpreter lock for each record, and cost more than the sending; there is none. Instead a record that Kafka
refuses ends the producer (the gapless guarantee), and who counts the rows compares them with the end of the topic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from confluent_kafka import KafkaError, KafkaException, Producer
from pydantic import ByteSize

from capture.table_sync.rows import Records
from schemas.connections import KafkaConfig
from schemas.errors import LogError
from schemas.pg_types.pg_type import ValueNotCarried
from stores.kafka_log import log_error

_SLICE_SECONDS = 0.2
_ERROR = "_error"
"""Where produce_batch writes why it did not take a record."""


class RowSender:
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

    def send(self, topic: str, records: Records) -> None:
        """Queues all of them; waits while the queue is full."""
        while self._producer.produce_batch(topic, records, partition=0) < len(records):
            records = self._refused(topic, records)
            self._wait(self._producer.poll)
        self._producer.poll(0)
        self._raise_failure()

    def flush(self) -> None:
        """Returns when Kafka has every record that was sent; raises if it refused one."""
        while len(self._producer) > 0:
            self._wait(self._producer.flush)
        self._producer.poll(0)
        self._raise_failure()

    def _refused(self, topic: str, records: Records) -> Records:
        """What is to be sent again. Raises for a record that no other try will make fit."""
        again = []
        for record in records:
            error = cast("KafkaError | None", record.pop(_ERROR, None))
            if error is None:
                continue
            code = error.code()
            if code == KafkaError.MSG_SIZE_TOO_LARGE:
                raise ValueNotCarried(
                    f"A row needs a record of {len(record['value'] or b''):,} bytes; {self._largest:,} are allowed.",
                    solution="Raise `kafka.max_record`, and max.message.bytes of the table's topics.",
                )
            if code != KafkaError._QUEUE_FULL:  # noqa: SLF001 -- confluent-kafka names its local errors so
                raise log_error(error, f"sending to {topic}")
            again.append(record)
        return again

    def _wait(self, for_a_while: Callable[[float], int]) -> None:
        try:
            for_a_while(_SLICE_SECONDS)
        except KafkaException as error:
            raise log_error(error.args[0], "waiting for a copy's records") from error
        self._raise_failure()
        self._alive()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _failed(self, error: KafkaError) -> None:
        """Called for whatever librdkafka notices; a broker that is away is no failure."""
        if error.fatal() and self._failure is None:
            self._failure = log_error(error, "a record of a copy")
