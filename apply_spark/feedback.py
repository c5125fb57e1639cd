"""Feedback records out: sent after a destination has stored its progress, never before."""

from __future__ import annotations

import time
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException, Message

from apply_spark.progress import Progress
from schemas.connections import KafkaConfig
from schemas.errors import LogError
from schemas.failpoints import failpoint
from schemas.feedback import Feedback
from schemas.identifiers import DestinationName
from stores.kafka_errors import NotAllowed, log_error
from stores.kafka_log import durable_producer, what_ended


class FeedbackSender:
    """Tells capture, and whoever asks for status, how far a destination is. The newest record is all that counts."""

    def __init__(self, kafka: KafkaConfig, topic: str, destination: DestinationName) -> None:
        self._topic = topic
        self._destination = destination
        self._patience = kafka.patience.total_seconds()
        self._producer = durable_producer(kafka, {"linger.ms": 0})
        self._failure: NotAllowed | None = None

    def send(self, progress: Progress) -> None:
        """NotAllowed: capture would wait for it for good."""
        feedback = Feedback(
            destination=self._destination,
            log_id=progress.log_id,
            lsn=progress.lsn,
            commit_ts=progress.commit_ts,
            applied_at=time.time_ns() // 1000,
            tables=tuple(table.report() for table in progress.tables.values()),
        )
        try:
            with suppress(BufferError):  # Kafka takes nothing just now: the next record tells more
                failpoint("feedback.sending", BufferError)
                self._produce(feedback.encode())
                failpoint("feedback.sent", BufferError)
            self._producer.poll(0)
        except KafkaException as error:  # the producer had to end
            raise self._error(what_ended(self._producer, error.args[0])) from error
        if self._failure is not None:
            raise self._failure

    def _produce(self, value: bytes) -> None:
        key = self._destination.encode()
        self._producer.produce(self._topic, value, key, partition=0, on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            found = self._error(error)
            self._failure = found if isinstance(found, NotAllowed) else None  # else the next record tells more

    def _error(self, error: KafkaError) -> LogError:
        return log_error(error, f"feedback on {self._topic}", topic=self._topic)

    def close(self) -> None:
        """What was not taken by then is told again by the next apply."""
        with suppress(KafkaException):  # it had to end, and said so
            self._producer.flush(self._patience)


class NoFeedback:
    """Of a destination that capture is not to wait for, ever."""

    def send(self, _progress: Progress) -> None:
        """Nobody is told."""

    def close(self) -> None:
        """Nothing is left to send."""
