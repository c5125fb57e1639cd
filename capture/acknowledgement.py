"""Feedback records in, the LSN that Postgres may forget out. Only checkpoint LSNs, never backwards."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from capture.metrics import CUT_OFF_DESTINATIONS
from schemas.acknowledge import AcknowledgeConfig, Policy
from schemas.identifiers import DestinationName, LogId
from schemas.lsn import NOWHERE, Lsn
from stores.kafka_log import Record
from stores.kafka_tail import Tail
from stores.small_topics import feedbacks

_REMEMBERED = 1000

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Released:
    """What the slot has let go when capture starts. `anything`: since the log began."""

    lsn: Lsn
    anything: bool


class Acknowledgement:
    """Applies the policy to what destinations reported and to the last checkpoint.

    A destination that is below what was already let go has joined late, or was cut off by the bound: it reads from
    Kafka, and holds WAL back only once it has caught up. Before anything was let go, one that has not reported yet is
    only slow to start: it holds."""

    def __init__(
        self,
        configured: AcknowledgeConfig,
        required: tuple[DestinationName, ...],
        log_id: LogId,
        released: Released,
        tail: Tail,
    ) -> None:
        self._configured = self._in_force = configured
        self._required = required
        self._log_id = log_id
        self._tail = tail
        self._reported: dict[DestinationName, Lsn] = {}
        self._released = released
        self._checkpoints: list[Lsn] = []
        self._spacing = 0
        self._cut_off: set[DestinationName] = set()
        self.flushed = released.lsn
        self.holders: tuple[DestinationName, ...] = ()
        """For whom WAL before the last checkpoint was kept at the last update; may be read from another thread."""

    def switch(self, wanted: AcknowledgeConfig | None) -> None:
        """Goes on by another policy, None: by the configured one. What was let go stays let go."""
        self._in_force = wanted or self._configured
        self._cut_off.clear()
        log.warning("acknowledge policy switched", policy=str(self._in_force), configured=str(self._configured))

    def hear(self, records: Iterable[Record]) -> None:
        """Takes in reports that speak of this log. What a destination had, it has: a lower report came late, or is of
        an apply that has started again and tells of empty intervals, which are not stored, once more."""
        for feedback in feedbacks(records):
            if feedback.log_id == self._log_id:
                known = self._reported.get(feedback.destination, NOWHERE)
                self._reported[feedback.destination] = max(known, feedback.lsn)

    def update(self, checkpoint: Lsn, wal_end: Lsn = NOWHERE) -> bool:
        """Takes in new feedback; True if `flushed` moved. `wal_end` is where the server's WAL ends, as far as known.

        What was reported before capture started must have been heard by then: of old reports only some, a destination
        would seem to be behind, and not be waited for."""
        self.hear(self._tail.new())
        self._remember(checkpoint)
        allowed = min(self._allowed(checkpoint, max(wal_end, checkpoint)), checkpoint)
        moved = allowed > self.flushed
        if moved:
            self.flushed = allowed
            del self._checkpoints[: bisect_right(self._checkpoints, allowed)]
        self._take_back()
        self.holders = self._held_by(checkpoint)
        return moved

    def _allowed(self, checkpoint: Lsn, wal_end: Lsn) -> Lsn:
        match self._in_force.policy:
            case Policy.DESTINATIONS:
                return self._followed(checkpoint)
            case Policy.BOUNDED:
                return self._bounded(checkpoint, wal_end)
            case Policy.KAFKA:
                return checkpoint

    def _followed(self, checkpoint: Lsn) -> Lsn:
        if not self._required:
            return checkpoint
        return min((self._reported.get(name, NOWHERE) for name in self._holding()), default=self.flushed)

    def _bounded(self, checkpoint: Lsn, wal_end: Lsn) -> Lsn:
        """What destinations allow; where that leaves more than `max_wal`, the first checkpoint that leaves no more."""
        max_wal = self._in_force.max_wal
        assert max_wal is not None  # noqa: S101 -- the policy is not made without
        followed = self._followed(checkpoint)
        least = wal_end - max_wal
        if max(followed, self.flushed) >= least:
            return followed
        place = bisect_left(self._checkpoints, least)
        lsns = {name: self._reported.get(name, NOWHERE) for name in self._holding()}
        enough = [*self._checkpoints[place : place + 1], *(lsn for lsn in lsns.values() if lsn >= least)]
        released = min(enough, default=checkpoint)
        for name, lsn in lsns.items():
            if lsn < released and name not in self._cut_off:
                self._cut_off.add(name)
                log.warning(
                    "destination is further behind than max_wal, letting go of WAL that only kafka has",
                    destination=name,
                    destination_lsn=str(lsn),
                    max_wal=int(max_wal),
                )
        return released

    def _holding(self) -> list[DestinationName]:
        unheard = [name for name in self._required if name not in self._reported]
        level = [name for name, lsn in self._reported.items() if name in self._required and lsn >= self.flushed]
        return level if self._released.anything else level + unheard

    def _remember(self, checkpoint: Lsn) -> None:
        """Keeps the checkpoints that may still be acknowledged; where they are very many, evenly spaced ones."""
        kept = self._checkpoints
        if not kept:
            self._spacing = 0
        if checkpoint - (kept[-1] if kept else self.flushed) > self._spacing:
            kept.append(checkpoint)
            if len(kept) > _REMEMBERED:
                del kept[::2]
                self._spacing = (kept[-1] - kept[0]) // len(kept)

    def _take_back(self) -> None:
        """Those that were cut off and have caught up are waited for again."""
        for name in [each for each in self._cut_off if self._reported.get(each, NOWHERE) >= self.flushed]:
            self._cut_off.discard(name)
            log.info("destination is within max_wal again", destination=name)
        CUT_OFF_DESTINATIONS.set(len(self._cut_off))

    def _held_by(self, checkpoint: Lsn) -> tuple[DestinationName, ...]:
        if self._in_force.policy is Policy.KAFKA:
            return ()
        lsns = {name: self._reported.get(name, NOWHERE) for name in self._holding() or self._cut_off}
        furthest = min(lsns.values(), default=checkpoint)
        return tuple(name for name, lsn in lsns.items() if lsn == furthest) if furthest < checkpoint else ()
