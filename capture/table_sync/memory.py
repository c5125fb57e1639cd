"""What table sync remembers of its copies, for two threads: its own, and the stream's, when a checkpoint stands.

What is read to be written back is held by a lock meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import structlog

from capture.table_sync.resume import Interrupted
from schemas.checkpoint import CopyFinished, CopyStarted
from schemas.identifiers import TableName
from schemas.lsn import Lsn
from schemas.phases import DataSync, Errored, FinishedCopy, Init
from stores.lifecycle import TableLifecycleStore
from stores.state import CAPTURE, RangeOfCopy, SourceIdentity, StateStore, TableCopy

log = structlog.get_logger(__name__)


class SyncStore(StateStore, TableLifecycleStore, Protocol):
    """What table sync remembers with."""


def forget_copies_under_way_elsewhere(store: SyncStore, source: SourceIdentity) -> None:
    """A copy does not go on after a promotion: its snapshots may be above the place where the new timeline began, and
    show transactions that the new server never had."""
    known = store.source(CAPTURE)
    if known is None or known.timeline == source.timeline:
        return
    for table, copy in store.copies().items():
        if not copy.finished:
            log.warning("copy was under way when its server was replaced, copying again", table=str(table))
            store.clear_for_copy(table)


class CopyMemory:
    """Capture's memory of copies. A table is in Init until its CopyStarted stands in a checkpoint, then in DataSync
    until its CopyFinished does."""

    def __init__(self, store: SyncStore) -> None:
        self._store = store
        self._lock = threading.Lock()

    def copies(self) -> dict[TableName, TableCopy]:
        return self._store.copies()

    def tables(self) -> set[TableName]:
        """Every table of which anything is known."""
        return {*self._store.copies(), *self._store.phases(CAPTURE)}

    def interrupted(self, table: TableName) -> Interrupted | None:
        """What there is of a copy that did not come to its end."""
        copy = self._store.copies().get(table)
        if copy is None or copy.finished:
            return None
        announced = self._store.phases(CAPTURE).get(table) == DataSync()
        return Interrupted(copy, tuple(self._store.ranges(table)), announced)

    def begin(self, copy: TableCopy, ranges: Sequence[RangeOfCopy]) -> None:
        with self._lock:
            self._store.set_copy(copy)
            self._store.set_phase(CAPTURE, copy.table, Init())
            self._store.set_ranges(ranges)

    def announced(self, started: CopyStarted) -> None:
        with self._lock:
            begun = self._store.phases(CAPTURE).get(started.table) == Init()
            if begun and self._is_of(started.table, started.generation):
                self._store.set_phase(CAPTURE, started.table, DataSync())

    def range_finished(self, part: RangeOfCopy) -> None:
        with self._lock:
            self._store.set_ranges([part])

    def finished(self, finished: CopyFinished) -> bool:
        """False if the table has another copy by now, or none, or is about to leave."""
        with self._lock:
            under_way = self._store.phases(CAPTURE).get(finished.table) == DataSync()
            if not under_way or not self._is_of(finished.table, finished.generation):
                return False
            copy = self._store.copies()[finished.table]
            self._store.set_copy(replace(copy, finished=True, rows=finished.rows))
            self._store.set_phase(CAPTURE, finished.table, FinishedCopy())
            return True

    def stopped(self, table: TableName, errored: Errored) -> None:
        with self._lock:
            self._store.set_phase(CAPTURE, table, errored)

    def files(self, copy: TableCopy, filenode: str) -> None:
        """The table's files are others now, and its copy is still true."""
        with self._lock:
            if self._store.copies().get(copy.table) == copy:
                self._store.set_copy(replace(copy, filenode=filenode))

    def leave(self, table: TableName) -> None:
        """The log is about to say that the table left: its copy, if it is under way, ends for whoever reads that."""
        with self._lock:
            if self._store.phases(CAPTURE).get(table) == DataSync():
                self._store.set_phase(CAPTURE, table, Init())

    def clear(self, table: TableName) -> None:
        """What there was of the table's copy is worth nothing: only the next generation can be true."""
        with self._lock:
            if table in self._store.copies():
                self._store.clear_for_copy(table)

    def forget(self, table: TableName, generation: Lsn | None) -> bool:
        """The table is gone, unless it came back in the meantime, and has a copy of another generation."""
        with self._lock:
            copy = self._store.copies().get(table)
            if copy is not None and copy.generation != generation:
                return False
            self._store.delete_table(table)
            return True

    def _is_of(self, table: TableName, generation: Lsn) -> bool:
        copy = self._store.copies().get(table)
        return copy is not None and copy.generation == generation
