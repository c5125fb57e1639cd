"""What the log still tells of the copies of each table: checkpoints in, the copies that a replay can begin with out.

A copy and the changes since hold a table at any LSN from its newest snapshot on, up to where something ended it: rows
that were rewritten without events, a value that capture could not carry, the table's leaving. Only the newest log
counts: LSNs of two logs are never compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from apply_spark.markers import begun
from apply_spark.progress import ShapeAhead, TableProgress
from schemas.checkpoint import Checkpoint, CopyFinished, CopyStarted, Marker, SchemaChanged, TableErrored, TableRemoved
from schemas.errors import Retry
from schemas.identifiers import Epoch, LogId, SchemaId, TableName
from schemas.lsn import NOWHERE, Lsn
from schemas.phases import Errored, Init


@dataclass(frozen=True)
class Ending:
    """From `lsn` on the copy and the changes since no longer say what the table holds."""

    lsn: Lsn
    reason: str


@dataclass(frozen=True)
class LoggedCopy:
    """One generation of a table, as the markers of the log tell."""

    started: CopyStarted
    epoch: Epoch
    """The live epoch where it began."""
    finished: CopyFinished | None = None
    shapes: tuple[ShapeAhead, ...] = ()
    ending: Ending | None = None

    @property
    def generation(self) -> Lsn:
        return self.started.generation

    @property
    def since(self) -> Lsn:
        """From there on it tells what the table holds."""
        return self.finished.last if self.finished is not None else self.generation

    def unreached(self, lsn: Lsn) -> str | None:
        """Why it does not tell what the table holds at `lsn`, which is not below its snapshot; None: it does."""
        if self.finished is None:
            return f"Its copy, begun at {self.generation}, is not complete on Kafka."
        if self.since > lsn:
            return f"Its copy, begun at {self.generation}, was interrupted: it holds from {self.since} on."
        if self.ending is not None and lsn > self.ending.lsn:
            return f"Its copy of {self.generation} holds up to {self.ending.lsn} only: there {self.ending.reason}."
        return None

    def with_marker(self, marker: Marker, window_start: Lsn) -> LoggedCopy:
        """As `markers.marked` takes them in: what is older than the copy is in it already."""
        match marker:
            case CopyFinished(generation=generation) if generation == self.generation:
                return replace(self, finished=marker)
            case SchemaChanged(position=position, schema_id=schema_id, rewrite=False):
                if position.commit_lsn >= self.generation:
                    return replace(self, shapes=(*self.shapes, ShapeAhead(position, schema_id)))
            case SchemaChanged(position=position):
                return self._ended(position.commit_lsn, "its rows were rewritten")
            case TableErrored(position=position, reason=reason):
                return self._ended(position.commit_lsn, f"capture stopped it ({reason})")
            case TableRemoved():
                return self._ended(window_start, "it left the publication")
            case _:
                pass
        return self

    def _ended(self, lsn: Lsn, reason: str) -> LoggedCopy:
        return replace(self, ending=Ending(lsn, reason)) if self.ending is None and lsn >= self.generation else self

    def begun(self, lsn: Lsn) -> TableProgress:
        """The table at its beginning, on its way to `lsn`; nothing of it is written yet."""
        assert self.finished is not None  # noqa: S101 -- or it would not reach
        return replace(
            begun(self.started, self.epoch),
            copy_end=self.finished.ends[0],
            copy_rows=self.finished.rows,
            copy_bytes=self.finished.bytes,
            last_snapshot=self.finished.last,
            ahead=self.shapes_between(self.generation, lsn),
        )

    def shapes_between(self, start: Lsn, end: Lsn) -> tuple[ShapeAhead, ...]:
        return tuple(shape for shape in self.shapes if start <= shape.position.commit_lsn < end)


@dataclass(frozen=True)
class History:
    """What is left of the newest log."""

    log_id: LogId
    first: Checkpoint
    first_offset: int
    whole: bool
    """Whether its beginning is left: then no table is unknown to it."""
    last: Checkpoint
    copies: Mapping[TableName, tuple[LoggedCopy, ...]]
    """Oldest first."""
    removed: Mapping[TableName, Lsn]
    moved: frozenset[str]
    """The topics that had rows."""

    def copy_at(self, table: TableName, lsn: Lsn) -> LoggedCopy | None:
        """The newest that was begun by then: a later copy is truer than an earlier one and its changes."""
        begun = [copy for copy in self.copies.get(table, ()) if copy.generation <= lsn]
        return begun[-1] if begun else None

    def is_gone(self, table: TableName, lsn: Lsn) -> bool:
        """Whether the table has left by then, and has not come back."""
        removed = self.removed.get(table)
        copy = self.copy_at(table, lsn)
        return removed is not None and removed <= lsn and (copy is None or copy.generation <= removed)


def history(checkpoints: Iterable[tuple[int, Checkpoint]]) -> History | None:
    """Accepted checkpoints with their offsets, in log order; None where there is none."""
    first: tuple[int, Checkpoint] | None = None
    last: Checkpoint | None = None
    whole = False
    copies: dict[TableName, tuple[LoggedCopy, ...]] = {}
    removed: dict[TableName, Lsn] = {}
    moved: set[str] = set()
    for offset, checkpoint in checkpoints:
        if first is None or first[1].log_id != checkpoint.log_id:
            whole = first is not None or offset == 0
            first = offset, checkpoint
            copies, removed, moved = {}, {}, set()
        last = checkpoint
        moved.update(each.topic for each in checkpoint.moved)
        for marker in checkpoint.markers:
            known = tuple(copy.with_marker(marker, checkpoint.start) for copy in copies.get(marker.table, ()))
            if isinstance(marker, TableRemoved):
                removed[marker.table] = checkpoint.start
            if isinstance(marker, CopyStarted):
                known = (*known, LoggedCopy(marker, checkpoint.epoch))
            if known:
                copies[marker.table] = known
    if first is None or last is None:
        return None
    return History(first[1].log_id, first[1], first[0], whole, last, copies, removed, frozenset(moved))


def unreached(table: TableName, reason: str, log_offset: int) -> TableProgress:
    """A table of which the destination has nothing, and why; its next copy begins it."""
    return TableProgress(
        table=table,
        phase=Errored(reason, f"Run `penstock resync {table}`.", Retry.MANUAL, 1, Init()),
        generation=NOWHERE,
        schema_id=SchemaId(0),
        lsn=NOWHERE,
        epoch=Epoch(0),
        log_offset=log_offset,
        topic_offset=0,
    )
