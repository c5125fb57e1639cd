"""How far a destination is: what it stores with its rows, in the same transaction.

Every table has its own progress, so copying, catching up, broken and ready tables live side by side. LSNs are the
truth; offsets only say where to begin reading.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from schemas.errors import Retry, StateTooNew
from schemas.feedback import TableReport
from schemas.identifiers import Epoch, LogId, SchemaId, TableName
from schemas.lsn import NOWHERE, Lsn, Position
from schemas.phases import Errored, Phase, Ready, StoredPhase, SyncDone, phase_from_json, phase_to_json

_CONTROL, _SHOWING, _FORMAT = "control", "showing", "format"
_NEWEST = 1
"""The format of what is stored. One more where a field comes to mean something else: a new field is noticed without."""
_BESIDE = _CONTROL, _SHOWING, _FORMAT
"""What stands with a table and is not of it."""


@dataclass(frozen=True, slots=True)
class ShapeAhead:
    """From `position` on the table has this shape."""

    position: Position
    schema_id: SchemaId


@dataclass(frozen=True, slots=True)
class TableProgress:
    """One table: it holds exactly the transactions with commit LSN < `lsn`, once its copy is applied."""

    table: TableName
    phase: Phase
    generation: Lsn
    schema_id: SchemaId
    lsn: Lsn
    epoch: Epoch
    """The live epoch at `log_offset`."""
    log_offset: int
    """The next checkpoint record to take in."""
    topic_offset: int
    """Where the change topic is to be read from."""
    copy_offset: int = 0
    copied: int = 0
    copy_end: int | None = None
    """Known once capture has finished the copy, together with its rows, its bytes and its newest snapshot."""
    copy_rows: int = 0
    copy_bytes: int = 0
    last_snapshot: Lsn = NOWHERE
    ahead: tuple[ShapeAhead, ...] = ()
    """Shapes that the log has told of, and that the table takes on when it comes to their positions, in order."""
    attempts: int = 0
    """How often in a row it has failed, since it last moved."""
    paused: bool = False
    """Somebody asked that it stands still: whatever its phase is, it does not move."""
    skipped: tuple[Position, ...] = ()
    """What it was told to pass over, and so lacks, since its copy."""
    mirrored: SchemaId | None = None
    """The shape that the mirror has, where that is not `schema_id`: a new copy is on its way, or shapes are ignored."""
    source: TableName | None = None
    """Its name at the source, where the destination has it under another one. Apply itself knows that name only."""

    def shapes_before(self, lsn: Lsn) -> tuple[ShapeAhead, ...]:
        """Those that the table takes on if it goes on to `lsn`."""
        return tuple(shape for shape in self.ahead if shape.position.commit_lsn < lsn)

    def shapes_since(self, lsn: Lsn) -> tuple[ShapeAhead, ...]:
        """Those that it takes on only after it has come to `lsn`."""
        return tuple(shape for shape in self.ahead if shape.position.commit_lsn >= lsn)

    @property
    def repeats(self) -> bool:
        """Whether a key may come more than once on the copy topic: the copy was interrupted and resumed."""
        return self.last_snapshot > self.generation

    @property
    def moves(self) -> bool:
        """Whether the table takes part in intervals, given that it stands where the destination stands."""
        return not self.paused and isinstance(self.phase, Ready | SyncDone)

    @property
    def shown(self) -> Phase:
        """The phase as others see it: a table that is paused is held, with that as its reason."""
        if not self.paused:
            return self.phase
        before = f" Before that: {self.phase.reason}" if isinstance(self.phase, Errored) else ""
        held, attempt = (self.phase.held, self.phase.attempt) if isinstance(self.phase, Errored) else (self.phase, 0)
        assert isinstance(held, StoredPhase)  # noqa: S101 -- a table that does not move is in no other
        return Errored(f"Paused.{before}", f"Run `penstock resume {self.table}`.", Retry.MANUAL, attempt, held)

    def released(self) -> TableProgress:
        """The table as it was before it was held. One that moved with the others has to catch up with them first."""
        phase = self.phase.held if isinstance(self.phase, Errored) else self.phase
        return replace(self, phase=SyncDone(self.lsn) if isinstance(phase, Ready) else phase)

    def report(self) -> TableReport:
        return TableReport(self.table, self.shown, self.lsn, self.generation, self.copied, self.paused, self.skipped)

    def to_json(self, **further: Any) -> str:  # noqa: ANN401 -- what JSON holds
        fields: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        ahead = [[*shape.position, shape.schema_id] for shape in self.ahead]
        encoded = {
            "table": list(self.table),
            "phase": phase_to_json(self.phase),
            "ahead": ahead,
            "skipped": [str(position) for position in self.skipped],
        }
        return json.dumps(fields | encoded | further | {_FORMAT: _NEWEST})

    @classmethod
    def from_json(cls, text: str) -> TableProgress:
        """What releases before did not write has its default. StateTooNew: a newer one wrote it."""
        stored = json.loads(text)
        format_, further = stored.get(_FORMAT, 0), stored.keys() - {*cls.__dataclass_fields__, *_BESIDE}
        if format_ > _NEWEST or further:
            raise StateTooNew(
                f"The progress of {'.'.join(stored['table'])} was written by a newer penstock: it has format "
                f"{format_}; this one knows {_NEWEST}{''.join(f', and not {name}' for name in sorted(further))}."
            )
        fields = {name: value for name, value in stored.items() if name not in _BESIDE}
        fields["table"] = TableName(*fields["table"])
        fields["source"] = TableName(*fields["source"]) if fields.get("source") else None
        fields["phase"] = phase_from_json(fields["phase"])
        for name in ("generation", "lsn", "last_snapshot"):
            fields[name] = Lsn(fields[name])
        fields["ahead"] = tuple(
            ShapeAhead(Position(Lsn(lsn), ordinal), SchemaId(schema_id))
            for lsn, ordinal, schema_id in fields.get("ahead", ())
        )
        fields["skipped"] = tuple(Position.parse(each) for each in fields.get("skipped", ()))
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Progress:
    """The destination as a whole, and each of its tables."""

    log_id: LogId
    lsn: Lsn
    epoch: Epoch | None
    log_offset: int
    commit_ts: int
    tables: Mapping[TableName, TableProgress]
    control: int | None = None
    """The next command to do. None: nothing before the end of the control topic is meant for this destination."""
    showing: str = ""
    """What was in force when it was stored, as `apply_spark.showing` tells it."""

    @classmethod
    def fresh(cls, log_id: LogId) -> Progress:
        return cls(log_id, Lsn(0), None, 0, 0, {})

    @classmethod
    def restored(cls, head: tuple[Any, ...], tables: Iterable[str]) -> Progress:
        """From what `stored` gave."""
        log_id, lsn, epoch, log_offset, commit_ts = head
        texts = list(tables)
        found = [TableProgress.from_json(text) for text in texts]
        return cls(
            log_id=LogId(log_id),
            lsn=Lsn(int(lsn)),
            epoch=Epoch(epoch) if epoch is not None else None,
            log_offset=log_offset,
            commit_ts=commit_ts,
            tables={table.table: table for table in found},
            control=next((json.loads(text).get(_CONTROL) for text in texts), None),
            showing=next((told for text in texts if (told := json.loads(text).get(_SHOWING))), ""),
        )

    def stored(self) -> tuple[list[Any], list[list[str]]]:
        """As plain values for a destination to keep: log id, LSN, epoch, offset, time; and schema, name and JSON of
        each table, each as a list. Commands are about tables, so which are done stands with each of these; what is
        shown, which may be long, with the first."""
        tables = list(self.tables.values())
        further = {} if self.control is None else {_CONTROL: self.control}
        first = {_SHOWING: self.showing} if self.showing else {}
        texts = [t.to_json(**further, **(first if place == 0 else {})) for place, t in enumerate(tables)]
        return (
            [self.log_id, int(self.lsn), self.epoch, self.log_offset, self.commit_ts],
            [[t.table.schema for t in tables], [t.table.name for t in tables], texts],
        )

    def with_tables(self, *changed: TableProgress) -> Progress:
        return replace(self, tables={**self.tables, **{table.table: table for table in changed}})

    def levelled(self) -> Progress:
        """Tables that stand where the destination stands, not below the newest snapshot of their copy, are Ready. One
        that a crash left ahead, and that the destination has passed by now, has to catch up, and is so no longer."""
        level = [
            replace(table, phase=Ready())
            for table in self.tables.values()
            if isinstance(table.phase, SyncDone)
            and table.log_offset == self.log_offset
            and table.lsn == self.lsn
            and self.lsn >= table.last_snapshot
        ]
        passed = [
            table.released()
            for table in self.tables.values()
            if isinstance(table.phase, Ready) and not table.paused and table.log_offset < self.log_offset
        ]
        return self.with_tables(*level, *passed) if level or passed else self

    def passed_over(self, log_offset: int) -> Progress:
        """A zombie's checkpoints at the end of what was read: the destination and all tables level with it are past."""
        if log_offset <= self.log_offset:
            return self
        level = [table for table in self.tables.values() if table.log_offset == self.log_offset]
        moved = self.with_tables(*[replace(table, log_offset=log_offset) for table in level])
        return replace(moved, log_offset=log_offset)

    def errored(self, table: TableName, errored: Errored) -> Progress:
        return self.with_tables(replace(self.tables[table], phase=errored, attempts=errored.attempt))
