"""What a pipeline remembers of its tables and of how far it is: the Protocol and its values.

An owner speaks for itself: capture has its memory, each destination has its own. Nothing of one is seen by another.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NewType, Protocol

from schemas.identifiers import LogId, SchemaId, TableName
from schemas.lsn import Lsn
from schemas.phases import Phase

Owner = NewType("Owner", str)
"""Whose memory it is: capture's, or that of the destination with this name."""

CAPTURE = Owner("capture")

HISTORY_LIMIT = 100
"""Phases kept of one table at one owner; the oldest go first, so that endless retries need no endless room."""


@dataclass(frozen=True, slots=True)
class TableCopy:
    """Capture's memory of a table's newest copy: what it was made of, and whether it lies on its topic to the end."""

    table: TableName
    log_id: LogId
    generation: Lsn
    schema_id: SchemaId
    filenode: str
    fingerprint: str
    finished: bool
    rows: int
    log_from: int
    """Where on the checkpoints topic, and on the table's change topic, its changes after the copy begin."""
    changes_from: int


@dataclass(frozen=True, slots=True)
class FinishedRange:
    """Kafka has all of a range."""

    snapshot: Lsn
    """Under which it was read."""
    rows: int
    bytes: int
    topic_end: int
    """How far the copy topic reached then, at least: a topic that is shorter has lost rows."""


@dataclass(frozen=True, slots=True)
class RangeOfCopy:
    """A part of a table's copy that is not finished yet: some blocks of one file, or all that the table shows."""

    table: TableName
    generation: Lsn
    index: int
    """Its place among the ranges of the table."""
    file: int | None
    """The oid of a table or of a leaf; None: the table is read by its own name."""
    first: int
    end: int | None
    """None: to the end of the file, wherever that is when it is read."""
    finished: FinishedRange | None = None
    """None: some of its rows may lie on the copy topic, or none."""


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """The server, its history and the database that LSNs belong to: those of another mean something else."""

    system_id: str
    """Given by initdb; a copy or a standby of the server has the same."""
    database_oid: int
    timeline: int
    """The branch of the server's WAL; a promotion begins the next one."""


class SchemaState(enum.Enum):
    """Whether a destination's table has the shape that is written down, or is on its way there."""

    APPLYING = "applying"
    APPLIED = "applied"


@dataclass(frozen=True, slots=True)
class DestinationTable:
    """A table as a destination holds it. APPLYING after a crash means: the DDL may or may not have happened."""

    table: TableName
    destination_name: TableName
    schema_id: SchemaId
    state: SchemaState


class StateStore(Protocol):
    """Phases, progress, source, copies and their ranges, destination tables and mappings.

    Every method may be called from any thread. A write is durable when it returns, and nobody reads it before it is
    durable. Every write may be repeated: the second time changes nothing. Writers in several processes take turns,
    and each decides on what is durable then; reads come from memory and show what this process wrote or last met.
    A write that raises a StoreError may or may not be durable: the next call finds out. Values returned are copies.
    """

    def phases(self, owner: Owner) -> dict[TableName, Phase]:
        """The current phase of every table that has one."""

    def set_phase(self, owner: Owner, table: TableName, phase: Phase) -> None:
        """Make `phase` the current one and the newest of the history; the current one again adds no history.

        A table begins with Init. A step that schemas.phases forbids is refused (ForbiddenTransition), where the phases
        that are not stored count as passed: FinishedCopy may become SyncDone, and SyncDone one of another LSN.
        SyncWait and Catchup themselves are refused (PhaseNotStored)."""

    def history(self, owner: Owner, table: TableName) -> list[Phase]:
        """Oldest first, the current one last, at most HISTORY_LIMIT; empty for an unknown table."""

    def rollback(self, owner: Owner, table: TableName) -> Phase:
        """Take the current phase out of the history; returns the one before it, which is current again.

        The only one left cannot be rolled back (NothingToRollBack). Not repeatable: twice goes back two phases."""

    def progress(self, owner: Owner) -> Lsn | None:
        """All transactions below this LSN are durable at `owner`; None where nothing was ever stored."""

    def advance(self, owner: Owner, lsn: Lsn) -> Lsn:
        """Raise the progress to `lsn`; returns what is stored then, which is never less than before."""

    def source(self, owner: Owner) -> SourceIdentity | None:
        """What the LSNs of `owner` belong to; None where nothing was ever stored."""

    def set_source(self, owner: Owner, source: SourceIdentity) -> None:
        """Remember the source in place of any other."""

    def copies(self) -> dict[TableName, TableCopy]:
        """The copy of every table that has one."""

    def set_copy(self, copy: TableCopy) -> None:
        """Remember the copy in place of any other of its table, older or newer: a recreated log may begin lower.

        Ranges of another generation are forgotten, and those of a copy that is finished."""

    def ranges(self, table: TableName) -> list[RangeOfCopy]:
        """How the copy of the table is divided, in the order of the ranges; empty where nobody said."""

    def set_ranges(self, ranges: Sequence[RangeOfCopy]) -> None:
        """Remember these ranges in place of those that have their places: all of them, or none.

        What is not of the generation of the table's copy, or of a finished one, is left out."""

    def destination_tables(self, owner: Owner) -> dict[TableName, DestinationTable]:
        """By the name of the source table."""

    def set_destination_table(self, owner: Owner, table: DestinationTable) -> None:
        """Remember the table in place of what was known of it."""

    def mapping(self, owner: Owner, table: TableName) -> TableName | None:
        """The name that `table` has at `owner`; None where it was given no other."""

    def set_mapping(self, owner: Owner, table: TableName, destination: TableName) -> None:
        """Give the table another name at `owner`. Two tables may share one: who maps decides."""
