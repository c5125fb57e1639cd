"""The logic of all stores, once: decide on what is in memory, make it durable, then show it.

Below lies something that keeps rows (`DurableRows`). A revision number, raised by every write and read under the lock
of every write, tells whether another process wrote meanwhile: then the rows are read again before anything is decided.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeAlias

from schemas.failpoints import failpoint
from schemas.identifiers import TableName
from schemas.lsn import Lsn
from schemas.phases import Catchup, ForbiddenTransition, Init, Phase, SyncWait, advance, is_stored
from stores.errors import (
    NothingToRollBack,
    PhaseNotStored,
    SchemaVersionConflict,
    StoreClosed,
    StoreTaken,
    StoreUnreachable,
    StoreUnreadable,
)
from stores.relations import (
    COPIES,
    COPY_RANGES,
    DESTINATION_TABLES,
    MAPPINGS,
    PHASES,
    PROGRESS,
    RELATIONS,
    SCHEMA_VERSIONS,
    SOURCES,
    Change,
    Drop,
    K,
    OwnedTable,
    Put,
    Relation,
    Row,
    V,
)
from stores.schema import SchemaVersion
from stores.state import HISTORY_LIMIT, DestinationTable, Owner, RangeOfCopy, SourceIdentity, TableCopy

Contents: TypeAlias = Mapping[Relation[Any, Any], Mapping[Any, Any]]


class DurableRows(Protocol):
    """Rows that outlive the process. Every error is a StoreError.

    One thread at a time; `rows` and `save` only inside `writing()`, `save` at most once there."""

    def writing(self) -> AbstractContextManager[int]:
        """One transaction that no other writer of these rows overlaps, in no process; gives their revision.

        Left without an error, it is durable. Left with one, nothing of it is visible to anybody, unless the error is
        StoreUnreachable: then nobody knows."""

    def rows(self, relation: Relation[Any, Any]) -> Iterable[Row]:
        """All rows, in any order."""

    def save(self, changes: Sequence[Change], revision: int) -> None:
        """Write the changes in their order, and the revision that they make."""

    def close(self) -> None:
        """Let go of files and connections. May be repeated."""


@dataclass(frozen=True, slots=True)
class _View:
    """What is durable as of a revision. Never changed, only replaced: readers need no lock."""

    revision: int
    contents: Contents

    def of(self, relation: Relation[K, V]) -> Mapping[K, V]:
        return self.contents[relation]


class _Draft:
    """A view with changes that are not durable yet. A change that changes nothing is left out."""

    def __init__(self, view: _View) -> None:
        self._view = view
        self._contents = dict(view.contents)
        self.changes: list[Change] = []

    def of(self, relation: Relation[K, V]) -> Mapping[K, V]:
        return self._contents[relation]

    def put(self, relation: Relation[K, V], key: K, value: V) -> None:
        self.put_all(relation, {key: value})

    def put_all(self, relation: Relation[K, V], values: Mapping[K, V]) -> None:
        new = {key: value for key, value in values.items() if self.of(relation).get(key) != value}
        if new:
            self._contents[relation] = {**self.of(relation), **new}
            self.changes.extend(Put(relation, key, value) for key, value in new.items())

    def drop(self, relation: Relation[K, V], keys: Iterable[K]) -> int:
        """Drop the keys that are there; returns how many."""
        gone = {key for key in keys if key in self.of(relation)}
        self._contents[relation] = {key: value for key, value in self.of(relation).items() if key not in gone}
        self.changes.extend(Drop(relation, key) for key in gone)
        return len(gone)

    def drop_ranges(self, table: TableName) -> None:
        self.drop(COPY_RANGES, [key for key in self.of(COPY_RANGES) if key[0] == table])

    def drop_owned(self, relation: Relation[OwnedTable, V], table: TableName) -> None:
        """Drop what every owner has of the table."""
        self.drop(relation, [key for key in self.of(relation) if key[1] == table])

    @property
    def next_revision(self) -> int:
        return self._view.revision + 1

    def view(self) -> _View:
        """What is durable once the changes are."""
        return _View(self.next_revision, self._contents) if self.changes else self._view


class CachedStore:
    """A StateStore, SchemaStore and TableLifecycleStore over durable rows; it owns them and closes them."""

    def __init__(self, rows: DurableRows) -> None:
        self._rows = rows
        self._lock = threading.Lock()
        self._closed = False
        self._view: _View | None = None
        self._claimed: int | None = None
        """The revision that nobody else may have changed."""
        try:
            self._current()
        except BaseException:
            rows.close()
            raise

    def close(self) -> None:
        """May be repeated; everything else is refused from here on (StoreClosed)."""
        with self._lock:
            self._closed = True
            self._view = None
            self._rows.close()

    def claim(self) -> None:
        """Reads what others wrote, and is alone from here on: once another process writes or claims, every write raises
        StoreTaken, until this one claims again. For whoever is alone by another right, such as that to a slot."""
        self._claimed = None
        with self._writing() as draft:
            self._rows.save((), draft.next_revision)
            self._claimed = draft.next_revision
        self._view = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # StateStore

    def phases(self, owner: Owner) -> dict[TableName, Phase]:
        histories = self._current().of(PHASES)
        return {table: history[-1] for (whose, table), history in histories.items() if whose == owner}

    def set_phase(self, owner: Owner, table: TableName, phase: Phase) -> None:
        if not is_stored(phase):
            raise PhaseNotStored(f"{type(phase).__name__} of table {table} at '{owner}' is not a phase to store.")
        with self._writing() as draft:
            history = draft.of(PHASES).get((owner, table), ())
            if history[-1:] != (phase,):
                _check_step(owner, table, history, phase)
                draft.put(PHASES, (owner, table), (*history, phase)[-HISTORY_LIMIT:])

    def history(self, owner: Owner, table: TableName) -> list[Phase]:
        return list(self._current().of(PHASES).get((owner, table), ()))

    def rollback(self, owner: Owner, table: TableName) -> Phase:
        with self._writing() as draft:
            history = draft.of(PHASES).get((owner, table), ())
            if not history:
                raise NothingToRollBack(
                    f"Table {table} has no phase at '{owner}'.",
                    solution="Look for its name, and for that of the destination, in `penstock status`.",
                )
            *before, current = history
            if not before:
                raise NothingToRollBack(
                    f"Table {table} at '{owner}' stands in its first phase, {type(current).__name__}."
                )
            draft.put(PHASES, (owner, table), tuple(before))
            return before[-1]

    def progress(self, owner: Owner) -> Lsn | None:
        return self._current().of(PROGRESS).get(owner)

    def advance(self, owner: Owner, lsn: Lsn) -> Lsn:
        with self._writing() as draft:
            highest = max(lsn, draft.of(PROGRESS).get(owner, lsn))
            draft.put(PROGRESS, owner, highest)
            return highest

    def source(self, owner: Owner) -> SourceIdentity | None:
        return self._current().of(SOURCES).get(owner)

    def set_source(self, owner: Owner, source: SourceIdentity) -> None:
        with self._writing() as draft:
            draft.put(SOURCES, owner, source)

    def copies(self) -> dict[TableName, TableCopy]:
        return dict(self._current().of(COPIES))

    def set_copy(self, copy: TableCopy) -> None:
        with self._writing() as draft:
            known = draft.of(COPIES).get(copy.table)
            if copy.finished or known is None or known.generation != copy.generation:
                draft.drop_ranges(copy.table)
            draft.put(COPIES, copy.table, copy)

    def ranges(self, table: TableName) -> list[RangeOfCopy]:
        known = self._current().of(COPY_RANGES)
        return sorted((part for (whose, _), part in known.items() if whose == table), key=lambda part: part.index)

    def set_ranges(self, ranges: Sequence[RangeOfCopy]) -> None:
        with self._writing() as draft:
            copies = draft.of(COPIES)
            open_copies = {(table, copy.generation) for table, copy in copies.items() if not copy.finished}
            wanted = [part for part in ranges if (part.table, part.generation) in open_copies]
            draft.put_all(COPY_RANGES, {(part.table, part.index): part for part in wanted})

    def destination_tables(self, owner: Owner) -> dict[TableName, DestinationTable]:
        known = self._current().of(DESTINATION_TABLES)
        return {table: value for (whose, table), value in known.items() if whose == owner}

    def set_destination_table(self, owner: Owner, table: DestinationTable) -> None:
        with self._writing() as draft:
            draft.put(DESTINATION_TABLES, (owner, table.table), table)

    def mapping(self, owner: Owner, table: TableName) -> TableName | None:
        return self._current().of(MAPPINGS).get((owner, table))

    def set_mapping(self, owner: Owner, table: TableName, destination: TableName) -> None:
        with self._writing() as draft:
            draft.put(MAPPINGS, (owner, table), destination)

    # SchemaStore

    def put(self, version: SchemaVersion) -> None:
        with self._writing() as draft:
            known = draft.of(SCHEMA_VERSIONS).get((version.table, version.since), version)
            if known != version:
                raise SchemaVersionConflict(
                    f"Table {version.table} already has another schema (id {known.schema_id}) from {version.since} on."
                )
            draft.put(SCHEMA_VERSIONS, (version.table, version.since), version)

    def at(self, table: TableName, lsn: Lsn) -> SchemaVersion | None:
        return _newest(self._current().of(SCHEMA_VERSIONS), table, lsn)

    def latest(self, table: TableName) -> SchemaVersion | None:
        return _newest(self._current().of(SCHEMA_VERSIONS), table, None)

    def prune(self, table: TableName, before: Lsn) -> int:
        with self._writing() as draft:
            valid = _newest(draft.of(SCHEMA_VERSIONS), table, before)
            if valid is None:
                return 0
            outlived = [key for key in draft.of(SCHEMA_VERSIONS) if key[0] == table and key[1] < valid.since]
            return draft.drop(SCHEMA_VERSIONS, outlived)

    def forget(self, since: Lsn) -> None:
        with self._writing() as draft:
            draft.drop(SCHEMA_VERSIONS, [key for key in draft.of(SCHEMA_VERSIONS) if key[1] >= since])

    # TableLifecycleStore

    def clear_for_copy(self, table: TableName) -> None:
        with self._writing() as draft:
            draft.drop(COPIES, [table])
            draft.drop_ranges(table)
            draft.drop_owned(DESTINATION_TABLES, table)
            for key in [key for key in draft.of(PHASES) if key[1] == table]:
                draft.put(PHASES, key, (Init(),))

    def delete_table(self, table: TableName) -> None:
        with self._writing() as draft:
            draft.drop(COPIES, [table])
            draft.drop_ranges(table)
            draft.drop_owned(PHASES, table)
            draft.drop_owned(DESTINATION_TABLES, table)
            draft.drop_owned(MAPPINGS, table)
            draft.drop(SCHEMA_VERSIONS, [key for key in draft.of(SCHEMA_VERSIONS) if key[0] == table])

    # Reading and writing

    def _current(self) -> _View:
        """What is known to be durable. Reads the rows only at the opening and after an error."""
        view = self._view
        if view is None:
            with self._writing() as draft:
                view = draft.view()
        return view

    @contextlib.contextmanager
    def _writing(self) -> Iterator[_Draft]:
        """Decide inside; what was decided is durable, and then visible, when the block is left without an error.

        After any error the memory is not trusted: the next call reads the rows again."""
        with self._lock:
            if self._closed:
                raise StoreClosed("The store is closed.")
            try:
                with self._rows.writing() as revision:
                    view = self._view
                    if view is None or view.revision != revision:
                        view = self._load(revision)
                    draft = _Draft(view)
                    yield draft
                    if draft.changes:
                        if self._claimed not in (None, revision):
                            raise StoreTaken("Another process has written to the store, or claimed it, since we did.")
                        self._rows.save(draft.changes, draft.next_revision)
                        self._claimed = draft.next_revision if self._claimed is not None else None
                        failpoint("store.saving", StoreUnreachable)
                if draft.changes:
                    failpoint("store.saved", StoreUnreachable)
            except BaseException:
                self._view = None
                raise
            self._view = draft.view()

    def _load(self, revision: int) -> _View:
        return _View(revision, {relation: self._read(relation) for relation in RELATIONS})

    def _read(self, relation: Relation[K, V]) -> dict[K, V]:
        try:
            return dict(relation.read(row) for row in self._rows.rows(relation))
        except (KeyError, TypeError, ValueError) as error:
            raise StoreUnreadable(f"A row of the store's table '{relation.name}' cannot be read.") from error


_ANY_LSN = Lsn(0)
_WAYS_BETWEEN_STORED_PHASES: tuple[tuple[Phase, ...], ...] = (
    (),
    (SyncWait(), Catchup(_ANY_LSN)),
    (Catchup(_ANY_LSN),),
)
"""What a table may pass, unstored, from one stored phase to the next."""


def _check_step(owner: Owner, table: TableName, history: tuple[Phase, ...], to: Phase) -> None:
    if not history:
        if to != Init():
            raise ForbiddenTransition(f"Table {table} at '{owner}' cannot begin with {type(to).__name__}.")
        return
    if not any(_leads(history[-1], way, to) for way in _WAYS_BETWEEN_STORED_PHASES):
        raise ForbiddenTransition(
            f"Table {table} at '{owner}' cannot go from {type(history[-1]).__name__} to {type(to).__name__}."
        )


def _leads(now: Phase, way: tuple[Phase, ...], to: Phase) -> bool:
    try:
        for step in (*way, to):
            now = advance(now, step)
    except ForbiddenTransition:
        return False
    return True


def _newest(
    versions: Mapping[tuple[TableName, Lsn], SchemaVersion], table: TableName, until: Lsn | None
) -> SchemaVersion | None:
    found = [since for whose, since in versions if whose == table and (until is None or since <= until)]
    return versions[table, max(found)] if found else None
