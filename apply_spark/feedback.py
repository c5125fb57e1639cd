"""Feedback records out: sent after a destination has stored its progress, never before."""

from __future__ import annotations

import time
from contextlib import suppress

from apply_spark.progress import Progress
from schemas.connections import KafkaConfig
from schemas.failpoints import failpoint
from schemas.feedback import Feedback
from schemas.identifiers import DestinationName
from stores.kafka_log import durable_producer


class FeedbackSender:
    """Tells capture, and whoever asks for status, how far a destination is. The newest record is all that counts."""

    def __init__(self, kafka: KafkaConfig, topic: str, destination: DestinationName) -> None:
        self._topic = topic
        self._destination = destination
        self._patience = kafka.patience.total_seconds()
        self._producer = durable_producer(kafka, {"linger.ms": 0})

    def send(self, progress: Progress) -> None:
        feedback = Feedback(
            destination=self._destination,
            log_id=progress.log_id,
            lsn=progress.lsn,
            commit_ts=progress.commit_ts,
            applied_at=time.time_ns() // 1000,
            tables=tuple(table.report() for table in progress.tables.values()),
        )
        with suppress(BufferError):  # Kafka takes nothing just now: the next record tells more
            failpoint("feedback.sending", BufferError)
            self._producer.produce(self._topic, feedback.encode(), self._destination.encode())
            failpoint("feedback.sent", BufferError)
        self._producer.poll(0)

    def close(self) -> None:
        """What was not taken by then is told again by the next apply."""
        self._producer.flush(self._patience)


class NoFeedback:
    """Of a destination that capture is not to wait for, ever."""

    def send(self, _progress: Progress) -> None:
        """Nobody is told."""

    def close(self) -> None:
        """Nothing is left to send."""
