"""Checkpoints written and read back: flush, end offsets, record.

A checkpoint is written only after Kafka has every record it covers. Capture reads its own log by the epoch rule, like
every other reader.
"""

from __future__ import annotations

import secrets
import threading
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import structlog

from capture.kafka_wait import KafkaWait
from schemas.checkpoint import COMPLETES, Checkpoint, Marker, Moved
from schemas.connections import KafkaConfig
from schemas.epochs import EpochRule
from schemas.failpoints import failpoint
from schemas.identifiers import Epoch, LogId
from schemas.lsn import NOWHERE, Lsn
from stores.kafka_errors import BrokerUnreachable, RecordsLost, TopicMissing
from stores.kafka_log import KafkaLog
from stores.record_writer import RecordWriter
from stores.small_topics import checkpoints

Ends: TypeAlias = Mapping[str, tuple[int, ...]]
"""An offset for each partition of a topic."""

_FULL_ENDS_EVERY = 1000
_SCAN = 1000

log = structlog.get_logger(__name__)


def new_epoch() -> Epoch:
    return Epoch(secrets.randbits(62))


def new_log_id() -> LogId:
    return LogId(uuid.uuid4().hex)


def last_accepted(log: KafkaLog, topic: str) -> tuple[int, Checkpoint] | None:
    """The newest checkpoint that counts, and its offset; None on an empty log.

    Reads backwards, more each time, until an opening or the beginning of what retention has left is in sight."""
    begin, end = log.begins([topic])[topic][0], log.ends([topic])[topic][0]
    span = _SCAN
    while True:
        start = max(begin, end - span)
        found = list(checkpoints(log.read(topic, start, end)))
        if start == begin or any(checkpoint.opens for _, checkpoint in found):
            break
        span *= 8
    opening = next((index for index, (_, c) in reversed(list(enumerate(found))) if c.opens), 0)
    rule = EpochRule()
    accepted = [each for each in found[opening:] if rule.accepts(each[1])]
    return accepted[-1] if accepted else None


def check_growth(before: Ends, now: Ends, moved: tuple[Moved, ...]) -> None:
    """A checkpoint never covers a hole: each topic is longer by the rows that were sent, at least."""
    sent = Counter[str]()
    for each in moved:
        sent[each.topic] += each.rows
    for topic, rows in sent.items():
        grown = now[topic][0] - before.get(topic, (0,))[0]
        if grown < rows:
            raise RecordsLost(f"{rows} records were sent to {topic}, and it is longer by {grown} only.")


@dataclass(frozen=True)
class LogPlace:
    """Where the log stood at a checkpoint: the next offset on the checkpoints topic, and the ends it knew."""

    next_offset: int
    ends: Ends


class CheckpointWriter:
    """Writes the checkpoints of one epoch; waits for Kafka for as long as that takes. To be closed by who made it."""

    def __init__(
        self,
        kafka: KafkaConfig,
        log: KafkaLog,
        topic: str,
        log_id: LogId,
        epoch: Epoch,
    ) -> None:
        self._log = log
        self._topic = topic
        self._log_id = log_id
        self._epoch = epoch
        self._records = RecordWriter(kafka, {"message.timeout.ms": 0})  # a broker that is away is waited for
        self._wait = KafkaWait(kafka)
        self._ends: dict[str, tuple[int, ...]] = {}
        self._written = 0
        self._lock = threading.Lock()
        self._place = LogPlace(0, {})
        self.lsn = NOWHERE
        self.commit_ts = 0

    def close(self) -> None:
        self._wait.close()

    @property
    def place(self) -> LogPlace:
        """The log as of the last checkpoint; safe to read from another thread."""
        with self._lock:
            return self._place

    def open(self, lsn: Lsn, topics: set[str], commit_ts: int, control: int, read: Ends | None = None) -> None:
        """Ends all epochs before this one. What they left above their last checkpoint is in nobody's window.

        `read`: how far topics of others were read for what lies before `lsn`; told beside the ends of ours."""
        self.lsn, self.commit_ts = lsn, commit_ts
        self._ends = self._measure(topics)
        ends = {**self._ends, **(read or {})}
        failpoint("checkpoint.opening", BrokerUnreachable)
        self._write(Checkpoint(self._log_id, self._epoch, True, lsn, lsn, commit_ts, _now(), (), ends, control))
        failpoint("checkpoint.opened", BrokerUnreachable)

    def cut(
        self,
        lsn: Lsn,
        moved: tuple[Moved, ...],
        commit_ts: int,
        control: int,
        markers: tuple[Marker, ...],
        *,
        completes: bool = False,
        read: Ends | None = None,
    ) -> None:
        """Closes the window [last lsn, lsn). The producer's flush has returned before. `read`: as for `open`."""
        assert lsn >= self.lsn, "a checkpoint never goes back"  # noqa: S101 -- an invariant of the protocol
        ends = self._measure({each.topic for each in moved})
        check_growth(self._ends, ends, moved)
        self._ends |= ends
        self._written += 1
        if self._written % _FULL_ENDS_EVERY == 0:
            ends = self._ends
        ends = {**ends, **(read or {})}
        failpoint("checkpoint.writing", BrokerUnreachable)
        self._write(
            Checkpoint(
                self._log_id, self._epoch, False, self.lsn, lsn, commit_ts, _now(), moved, ends, control, markers
            ),
            COMPLETES if completes else None,
        )
        failpoint("checkpoint.written", BrokerUnreachable)
        self.lsn = lsn

    def _measure(self, topics: set[str]) -> dict[str, tuple[int, ...]]:
        while True:
            try:
                return self._log.ends(topics)
            except BrokerUnreachable as error:
                log.warning("waiting for kafka", topics=sorted(topics), error=error.reason, solution=error.solution)
            except TopicMissing as error:
                raise RecordsLost(f"A topic was deleted while capture wrote to it: {error.reason}") from error

    def _write(self, checkpoint: Checkpoint, key: bytes | None = None) -> None:
        offset = self._records.write(
            self._topic, checkpoint.encode(), key, None, lambda: self._wait.look([self._topic], unsent=1)
        )
        self._wait.over()
        with self._lock:
            self._place = LogPlace(offset + 1, dict(self._ends))


def _now() -> int:
    return time.time_ns() // 1000
