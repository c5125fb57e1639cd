"""Feedback records in, the LSN that Postgres may forget out. Only checkpoint LSNs, never backwards."""

from __future__ import annotations

from dataclasses import dataclass

from capture.config import Policy
from schemas.feedback import Feedback
from schemas.identifiers import DestinationName, LogId
from schemas.lsn import NOWHERE, Lsn
from stores.kafka_log import Tail


@dataclass(frozen=True)
class Released:
    """What the slot has let go when capture starts. `anything`: since the log began."""

    lsn: Lsn
    anything: bool


class Acknowledgement:
    """Applies the policy to what destinations reported and to the last checkpoint.

    A destination that is below what was already let go has joined late: it reads from Kafka, and holds WAL back only
    once it has caught up. Before anything was let go, one that has not reported yet is only slow to start: it holds."""

    def __init__(
        self, policy: Policy, required: tuple[DestinationName, ...], log_id: LogId, released: Released, tail: Tail
    ) -> None:
        self._policy = policy
        self._required = required
        self._log_id = log_id
        self._tail = tail
        self._reported: dict[DestinationName, Lsn] = {}
        self._released = released
        self.flushed = released.lsn

    def update(self, checkpoint: Lsn) -> bool:
        """Takes in new feedback; True if `flushed` moved.

        A destination's report is used only if it speaks of this log."""
        for record in self._tail.new():
            if record.value is None:
                continue
            feedback = Feedback.decode(record.value)
            if feedback.log_id == self._log_id:
                self._reported[feedback.destination] = feedback.lsn
        allowed = min(self._allowed(checkpoint), checkpoint)
        if allowed <= self.flushed:
            return False
        self.flushed = allowed
        return True

    def _allowed(self, checkpoint: Lsn) -> Lsn:
        match self._policy:
            case Policy.DESTINATIONS:
                if not self._required:
                    return checkpoint
                return min((self._reported.get(name, NOWHERE) for name in self._holding()), default=self.flushed)
            case Policy.KAFKA:
                return checkpoint

    def _holding(self) -> list[DestinationName]:
        unheard = [name for name in self._required if name not in self._reported]
        level = [name for name, lsn in self._reported.items() if name in self._required and lsn >= self.flushed]
        return level if self._released.anything else level + unheard
