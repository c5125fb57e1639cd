"""What a destination that commits one table at a time is about to write, told before it does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from apply_spark.errors import DestinationTaken
from apply_spark.progress import Progress
from schemas.identifiers import TableName


@dataclass(frozen=True)
class Plan:
    """The progress that the commits of these tables lead to, and the one from which they lead."""

    owner: int
    number: int
    """By which the commits are known. A start repeats the plan that it finds, under its owner, as the next one."""
    after: Progress | None
    before: Progress | None = None
    tables: tuple[TableName, ...] = ()
    beside: tuple[TableName, ...] = ()
    """Tables whose next copy is built beside their mirror."""

    def reached(self, done: Sequence[TableName]) -> Progress | None:
        """What the destination holds, given the tables whose commits were made."""
        if len(done) == len(self.tables) or self.after is None:
            return self.after
        if self.before is None:
            return None
        return self.before.with_tables(*[self.after.tables[table] for table in done])

    def to_json(self) -> str:
        fields = {"owner": self.owner, "number": self.number, "tables": self.tables, "beside": self.beside}
        return json.dumps(fields | {"after": _stored(self.after), "before": _stored(self.before)})

    @classmethod
    def from_json(cls, text: str) -> Plan:
        fields = json.loads(text)
        return cls(
            owner=fields["owner"],
            number=fields["number"],
            after=_restored(fields["after"]),
            before=_restored(fields["before"]),
            tables=tuple(TableName(*table) for table in fields["tables"]),
            beside=tuple(TableName(*table) for table in fields.get("beside", ())),
        )


class Plans(Protocol):
    """The plans of one destination, counted from 1. Each can be made once, which is the compare-and-set of the
    destination: whoever does not make the next one has been replaced."""

    def newest(self) -> tuple[int, Plan | None]:
        """With its place in the count."""

    def add(self, place: int, plan: Plan) -> None:
        """DestinationTaken: somebody else made the plan of that place, or a later one."""


def taken(where: str) -> DestinationTaken:
    return DestinationTaken(f"Another apply has written to {where}.")


def _stored(progress: Progress | None) -> Any:  # noqa: ANN401 -- JSON
    return None if progress is None else progress.stored()


def _restored(stored: Any) -> Progress | None:  # noqa: ANN401 -- JSON
    return None if stored is None else Progress.restored(tuple(stored[0]), stored[1][2])
