"""Says, while capture waits for Kafka, what that lacks: asked beside the wait, which goes on."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import structlog

from schemas.connections import KafkaConfig
from stores.kafka_health import lacking

_SECONDS = 5.0

log = structlog.get_logger(__name__)


class KafkaWait:
    """One wait after the other. `look` may be called at any rate: it writes a line every few seconds.

    To be closed by who made it."""

    def __init__(self, kafka: KafkaConfig) -> None:
        self._kafka = kafka
        self._beside = ThreadPoolExecutor(1, "kafka-wait")
        self._asked: Future[None] | None = None
        self._began: float | None = None
        self._next = 0.0

    def look(self, topics: Iterable[str], unsent: int) -> None:
        """So many records for these topics are waited for."""
        now = time.monotonic()
        if self._began is None:
            self._began, self._next = now, now + _SECONDS
        elif now >= self._next and (self._asked is None or self._asked.done()):
            self._next = now + _SECONDS
            self._asked = self._beside.submit(self._report, sorted(topics), now - self._began, unsent)

    def over(self) -> None:
        self._began = None

    def close(self) -> None:
        """Its thread ends; that is not waited for: the broker that it asks may be silent."""
        self._beside.shutdown(wait=False, cancel_futures=True)

    def _report(self, topics: list[str], waited: float, unsent: int) -> None:
        found = lacking(self._kafka, topics)
        log.warning(
            "waiting for kafka",
            waited_seconds=round(waited),
            unsent=unsent,
            error=found.reason if found else "It answers, and is slow, or a quota holds this client back.",
            solution=found.solution if found else "None is needed; to be faster, raise the quota of this client.",
        )
