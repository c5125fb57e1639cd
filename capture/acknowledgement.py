"""Feedback records in, the LSN that Postgres may forget out. Only checkpoint LSNs, never backwards."""

from __future__ import annotations

from capture.config import Policy
from schemas.feedback import Feedback
from schemas.identifiers import DestinationName, LogId
from schemas.lsn import Lsn
from stores.kafka_log import Tail


class Acknowledgement:
    """Applies the policy to what destinations reported and to the last checkpoint."""

    def __init__(
        self, policy: Policy, required: tuple[DestinationName, ...], log_id: LogId, start: Lsn, tail: Tail
    ) -> None:
        self._policy = policy
        self._required = required
        self._log_id = log_id
        self._tail = tail
        self._reported: dict[DestinationName, Lsn] = {}
        self.flushed = start

    def update(self, checkpoint: Lsn) -> bool:
        """Takes in new feedback; True if `flushed` moved.

        A destination's report is used only if it speaks of this log; what no destination has reported holds WAL."""
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
                reported = (self._reported.get(name, Lsn(0)) for name in self._required)
                return min(reported, default=checkpoint)
            case Policy.KAFKA:
                return checkpoint
