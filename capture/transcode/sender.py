"""The reference sender: confluent-kafka's producer and its lists of dictionaries."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from capture.transcode.contract import Records

_ERROR = "_error"
"""Where produce_batch writes why it did not take a record."""


class Batch:
    """Records on their way to one topic."""

    def __init__(self) -> None:
        self.dicts: list[dict[str, bytes | None]] = []
        self.size = 0

    def __len__(self) -> int:
        return len(self.dicts)

    def add(self, key: bytes | None, value: bytes) -> None:
        self.dicts.append({"key": key, "value": value})
        self.size += len(value)


class Sender:
    """Takes batches of either path. A broker that is away is no failure: what ends the producer is."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self.failure: KafkaError | None = None
        self._producer = Producer({**settings, "error_cb": self._noticed})

    def __len__(self) -> int:
        return len(self._producer)

    def meet(self, seconds: float) -> None:
        with suppress(KafkaException):
            self._producer.list_topics(timeout=seconds)

    def send(self, topic: str, records: Records) -> None:
        batch: list[dict[str, Any]] = records.dicts
        if self._producer.produce_batch(topic, batch, partition=0) < len(batch):
            raise KafkaException(next(record[_ERROR] for record in batch if _ERROR in record))

    def poll(self) -> None:
        self.flush(0)

    def flush(self, seconds: float) -> None:
        try:
            if seconds:
                self._producer.flush(seconds)
            self._producer.poll(0)
        except KafkaException as error:  # a producer that has ended
            self._noticed(error.args[0])

    def purge(self) -> None:
        self._producer.purge()

    def _noticed(self, error: KafkaError) -> None:
        if error.fatal() and self.failure is None:
            self.failure = error
