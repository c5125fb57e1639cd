"""What must be true of a pipeline after each step, and once it has come to rest: DESIGN, section 1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas.acknowledge import Policy
from schemas.feedback import Feedback
from schemas.lsn import NOWHERE, Lsn
from schemas.phases import Ready, SyncDone
from tests.model.applying import Place, Violation
from tests.model.capturing import Capture
from tests.model.source import STEP, Source, bag
from tests.model.streamed import TOPICS

BOUND = 2 * STEP
"""Of the policy `bounded`."""


@dataclass
class Promises:
    """Remembers what it has seen, so that nothing goes back."""

    source: Source
    _seen: dict[object, Lsn] = field(default_factory=dict)
    _first: Lsn | None = None
    """Of the slot, before anything was let go."""

    def begin(self) -> None:
        """There is a slot."""
        self._first = self.source.confirmed if self._first is None else self._first

    def check_place(self, place: Place) -> None:
        """Whatever a table holds is one moment of the source; all that are Ready at an atomic one, the same moment."""
        progress = place.progress
        if progress is None:
            return
        self._check_forward((place.name, progress.log_id), progress.lsn)
        for name, table in progress.tables.items():
            self._check_forward((place.name, progress.log_id, name, table.generation), table.lsn)
            if place.atomic and isinstance(table.phase, Ready) and table.lsn != progress.lsn:
                raise Violation(f"{name} is Ready at {table.lsn}, its destination at {progress.lsn}")
            if isinstance(table.phase, Ready) and table.log_offset < progress.log_offset:
                raise Violation(f"{name} is Ready, and behind its destination")
            if isinstance(table.phase, Ready) and table.lsn < table.last_snapshot:
                raise Violation(f"{name} is Ready before its newest snapshot")
            if not isinstance(table.phase, Ready | SyncDone) or table.lsn < table.last_snapshot:
                continue
            then, begun = self.source.at(table.lsn), self.source.at(table.generation)
            if then.members.get(name) != begun.members.get(name):
                continue
            if Counter(place.rows[name]) != bag(then.rows[name]):
                raise Violation(f"{name} at {place.name} is not the source at {table.lsn}")

    def _check_forward(self, what: object, lsn: Lsn) -> None:
        if lsn < self._seen.get(what, NOWHERE):
            raise Violation(f"progress went back: {what}")
        self._seen[what] = lsn

    def check_released(self, before: Lsn | None, capture: Capture, places: Iterable[Place]) -> None:
        """A destination that was waited for has what is let go now. One that is behind what was let go long ago reads
        from Kafka, and is not waited for; before anything was let go, all are."""
        after = self.source.confirmed
        if before is None or after is None or after <= before:
            return
        policy = capture.acknowledgement._in_force.policy
        if policy is Policy.KAFKA or (policy is Policy.BOUNDED and self.source.end - before > BOUND):
            return
        reports = _reports(capture)
        for place in places:
            told = reports.get(place.name, NOWHERE) >= before
            waited_for = place.name in capture.required and (told or before == self._first)
            if waited_for and not self._has(place, after):
                raise Violation(f"WAL before {after} is let go, and {place.name} lacks some of it")

    def _has(self, place: Place, lsn: Lsn) -> bool:
        """Whether it holds all below, in the tables that are Ready there."""
        progress = place.progress
        if progress is None:
            return False
        ready = [table for table in progress.tables.values() if isinstance(table.phase, Ready)]
        return not any(
            table.lsn <= each.commit_lsn < lsn and table.table in each.tables
            for table in ready
            for each in self.source.wal
        )

    def check_end(self, capture: Capture, places: Iterable[Place]) -> None:
        """Everything has come to rest."""
        for place in places:
            progress = place.progress
            tables = progress.tables if progress is not None else {}
            if set(tables) != set(self.source.members):
                raise Violation(f"{place.name} has {sorted(map(str, tables))}")
            for name, table in tables.items():
                if not isinstance(table.phase, Ready):
                    raise Violation(f"{name} at {place.name} stays {table.phase}")
                if Counter(place.rows[name]) != bag(self.source.rows[name]):
                    raise Violation(f"{name} at {place.name} is not the source")
        if self.source.confirmed != capture.writer.lsn:
            raise Violation(f"WAL from {self.source.confirmed} on is held, though all have it")


def _reports(capture: Capture) -> dict[str, Lsn]:
    """The furthest that each destination has ever told."""
    found: dict[str, Lsn] = {}
    for record in capture.broker.logs[TOPICS.feedback]:
        told = Feedback.decode(record)
        found[told.destination] = max(told.lsn, found.get(told.destination, NOWHERE))
    return found
