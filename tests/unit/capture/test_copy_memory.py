"""What is remembered of copies, and when a copy may no longer go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from capture.table_sync.memory import CopyMemory, forget_copies_under_way_elsewhere
from capture.table_sync.ranges import CopyRange
from capture.table_sync.resume import remembered
from schemas.checkpoint import CopyFinished, CopyStarted
from schemas.identifiers import LogId, SchemaId, TableName
from schemas.lsn import Lsn
from stores.memory import MemoryStore
from stores.state import CAPTURE, FinishedRange, SourceIdentity, TableCopy

TABLE = TableName("public", "t")
S = Lsn(100)
COPY = TableCopy(TABLE, LogId("log"), S, SchemaId(7), "1:1", "{}", finished=False, rows=0, log_from=3, changes_from=4)
STARTED = CopyStarted(TABLE, SchemaId(7), S, "1:1", "{}", changes_from=4, log_from=3)
FINISHED = CopyFinished(TABLE, S, rows=9, bytes=90, ends=(9,), last=S)
SERVER = SourceIdentity("1", 5, timeline=1)
FIRST, SECOND = remembered(TABLE, S, [CopyRange(0), CopyRange(1)])


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def memory(store: MemoryStore) -> CopyMemory:
    memory = CopyMemory(store)
    memory.begin(COPY, [FIRST, SECOND])
    return memory


def test_a_copy_is_announced_once_its_beginning_stands_in_a_checkpoint_and_forgotten_once_its_end_does(
    memory: CopyMemory, store: MemoryStore
) -> None:
    begun = memory.interrupted(TABLE)
    memory.announced(STARTED)
    memory.range_finished(replace(FIRST, finished=FinishedRange(S, 9, 90, 9)))
    under_way = memory.interrupted(TABLE)

    assert begun is not None
    assert not begun.announced
    assert under_way is not None
    assert (under_way.announced, len(under_way.finished), len(under_way.ranges)) == (True, 1, 2)
    assert memory.finished(FINISHED)
    assert (memory.interrupted(TABLE), store.ranges(TABLE)) == (None, [])


def test_a_copy_of_a_table_that_left_meanwhile_cannot_go_on(memory: CopyMemory) -> None:
    memory.announced(STARTED)

    memory.leave(TABLE)

    left = memory.interrupted(TABLE)
    assert left is not None
    assert not left.announced


def test_a_copy_that_ends_while_its_table_leaves_is_not_finished_and_nothing_is_refused(memory: CopyMemory) -> None:
    memory.announced(STARTED)
    memory.leave(TABLE)

    assert not memory.finished(FINISHED)

    assert memory.forget(TABLE, S)
    assert memory.copies() == {}


def test_what_is_said_of_another_generation_changes_nothing(memory: CopyMemory) -> None:
    before = memory.interrupted(TABLE)

    memory.announced(replace(STARTED, generation=Lsn(50)))
    memory.range_finished(replace(FIRST, generation=Lsn(50), finished=FinishedRange(S, 9, 90, 9)))

    assert not memory.finished(replace(FINISHED, generation=Lsn(50)))
    assert not memory.forget(TABLE, Lsn(50))
    assert memory.interrupted(TABLE) == before


def test_a_copy_that_was_under_way_begins_again_on_a_promoted_server(memory: CopyMemory, store: MemoryStore) -> None:
    store.set_source(CAPTURE, SERVER)

    forget_copies_under_way_elsewhere(store, SERVER)
    assert memory.interrupted(TABLE) is not None

    forget_copies_under_way_elsewhere(store, replace(SERVER, timeline=2))
    assert memory.interrupted(TABLE) is None


def test_a_copy_that_was_finished_stands_on_a_promoted_server(memory: CopyMemory, store: MemoryStore) -> None:
    store.set_source(CAPTURE, SERVER)
    memory.announced(STARTED)
    memory.finished(FINISHED)

    forget_copies_under_way_elsewhere(store, replace(SERVER, timeline=2))

    assert TABLE in store.copies()
