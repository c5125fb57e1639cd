"""What StateStore, SchemaStore and TableLifecycleStore promise, tried on every implementation."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from schemas.identifiers import TableName
from schemas.lsn import Lsn
from schemas.phases import Catchup, DataSync, FinishedCopy, ForbiddenTransition, Init, Phase, Ready, SyncDone, SyncWait
from stores.cached import CachedStore
from stores.errors import NothingToRollBack, PhaseNotStored, SchemaVersionConflict, StoreClosed
from stores.lifecycle import TableLifecycleStore
from stores.memory import MemoryStore
from stores.postgres import PostgresStore
from stores.schema import SchemaStore
from stores.sqlite import SqliteStore
from stores.state import CAPTURE, HISTORY_LIMIT, Owner, SchemaState, StateStore
from tests.contract.store_values import (
    FAILED,
    ITEMS,
    LAKE,
    LATE,
    ORDERS,
    SERVER,
    a_copy,
    a_destination_table,
    a_pipeline,
    a_range,
    a_version,
    everything,
    fill,
    go_through,
)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CachedStore]:
    match request.param:
        case "memory":
            opened: CachedStore = MemoryStore()
        case "sqlite":
            opened = SqliteStore(tmp_path / "store.sqlite")
        case _:
            opened = PostgresStore(request.getfixturevalue("postgres").dsn(), a_pipeline())
    with opened:
        yield opened


def test_one_store_serves_all_three_protocols(store: CachedStore) -> None:
    state: StateStore = store
    schema: SchemaStore = store
    lifecycle: TableLifecycleStore = store

    assert [state, schema, lifecycle] == [store, store, store]


def test_a_new_store_knows_nothing(store: CachedStore) -> None:
    assert store.phases(LAKE) == {}
    assert store.history(LAKE, ORDERS) == []
    assert store.progress(CAPTURE) is None
    assert store.source(CAPTURE) is None
    assert store.copies() == {}
    assert store.ranges(ORDERS) == []
    assert store.destination_tables(LAKE) == {}
    assert store.mapping(LAKE, ORDERS) is None
    assert store.at(ORDERS, LATE) is None
    assert store.latest(ORDERS) is None


def test_a_table_goes_through_its_stored_phases_and_passes_the_others_unseen(store: CachedStore) -> None:
    life: list[Phase] = [
        Init(),
        DataSync(),
        FinishedCopy(),
        SyncDone(Lsn(1)),
        SyncDone(LATE),
        Ready(),
        FAILED,
        Ready(),
        Init(),
    ]

    go_through(store, *life)

    assert store.phases(LAKE) == {ORDERS: Init()}
    assert store.history(LAKE, ORDERS) == life


def test_the_phase_of_one_owner_is_not_seen_by_another(store: CachedStore) -> None:
    go_through(store, Init(), DataSync(), owner=LAKE)

    go_through(store, Init(), owner=CAPTURE)

    assert store.phases(LAKE) == {ORDERS: DataSync()}
    assert store.phases(CAPTURE) == {ORDERS: Init()}


@pytest.mark.parametrize("phase", [DataSync(), FinishedCopy(), SyncDone(LATE), Ready(), FAILED])
def test_a_table_begins_with_init_and_nothing_else(store: CachedStore, phase: Phase) -> None:
    with pytest.raises(ForbiddenTransition, match="orders"):
        store.set_phase(LAKE, ORDERS, phase)

    assert store.phases(LAKE) == {}


@pytest.mark.parametrize("phase", [FinishedCopy(), SyncDone(LATE), Ready()])
def test_a_forbidden_step_is_refused_and_changes_nothing(store: CachedStore, phase: Phase) -> None:
    go_through(store, Init())

    with pytest.raises(ForbiddenTransition, match="from Init to"):
        store.set_phase(LAKE, ORDERS, phase)

    assert store.history(LAKE, ORDERS) == [Init()]


@pytest.mark.parametrize("phase", [SyncWait(), Catchup(LATE)])
def test_a_phase_that_is_not_stored_is_refused(store: CachedStore, phase: Phase) -> None:
    go_through(store, Init(), DataSync(), FinishedCopy())

    with pytest.raises(PhaseNotStored):
        store.set_phase(LAKE, ORDERS, phase)

    assert store.phases(LAKE) == {ORDERS: FinishedCopy()}


def test_writing_the_current_phase_again_adds_no_history(store: CachedStore) -> None:
    go_through(store, Init(), DataSync(), DataSync())

    assert store.history(LAKE, ORDERS) == [Init(), DataSync()]


def test_history_keeps_the_newest_phases_and_forgets_the_oldest(store: CachedStore) -> None:
    retries = [dataclasses.replace(FAILED, attempt=attempt) for attempt in range(HISTORY_LIMIT)]

    go_through(store, Init(), *retries)

    assert store.history(LAKE, ORDERS) == retries


def test_rollback_leads_to_the_phase_before_and_takes_the_current_one_out_of_the_history(store: CachedStore) -> None:
    go_through(store, Init(), DataSync(), FAILED)

    assert store.rollback(LAKE, ORDERS) == DataSync()

    assert store.phases(LAKE) == {ORDERS: DataSync()}
    assert store.history(LAKE, ORDERS) == [Init(), DataSync()]


def test_the_first_phase_cannot_be_rolled_back(store: CachedStore) -> None:
    go_through(store, Init())

    with pytest.raises(NothingToRollBack, match="first phase, Init") as refused:
        store.rollback(LAKE, ORDERS)

    assert "resync" in refused.value.solution
    assert store.history(LAKE, ORDERS) == [Init()]


def test_a_table_without_a_phase_cannot_be_rolled_back(store: CachedStore) -> None:
    with pytest.raises(NothingToRollBack, match="has no phase") as refused:
        store.rollback(LAKE, ORDERS)

    assert "penstock status" in refused.value.solution


def test_progress_is_a_running_maximum_of_each_owner(store: CachedStore) -> None:
    assert store.advance(LAKE, Lsn(20)) == Lsn(20)
    assert store.advance(LAKE, Lsn(10)) == Lsn(20)
    assert store.advance(CAPTURE, LATE) == LATE

    assert (store.progress(LAKE), store.progress(CAPTURE)) == (Lsn(20), LATE)
    assert isinstance(store.progress(LAKE), Lsn)


def test_the_source_of_each_owner_is_the_last_that_was_set(store: CachedStore) -> None:
    store.set_source(LAKE, SERVER)
    store.set_source(CAPTURE, SERVER)

    store.set_source(CAPTURE, dataclasses.replace(SERVER, timeline=1))

    assert store.source(LAKE) == SERVER
    assert store.source(CAPTURE) == dataclasses.replace(SERVER, timeline=1)


def test_ranges_of_a_copy_come_back_in_their_order_and_one_is_finished_alone(store: CachedStore) -> None:
    store.set_copy(a_copy(finished=False))
    store.set_copy(a_copy(ITEMS, finished=False))

    store.set_ranges([a_range(1), a_range(0), a_range(0, ITEMS)])
    store.set_ranges([a_range(1, finished=True)])
    store.set_ranges([a_range(1, finished=True)])

    assert store.ranges(ORDERS) == [a_range(0), a_range(1, finished=True)]
    assert store.ranges(ITEMS) == [a_range(0, ITEMS)]


def test_ranges_are_forgotten_with_the_generation_and_when_the_copy_is_finished(store: CachedStore) -> None:
    store.set_copy(a_copy(finished=False))
    store.set_copy(a_copy(ITEMS, finished=False))
    store.set_ranges([a_range(0), a_range(1), a_range(0, ITEMS)])

    store.set_copy(dataclasses.replace(a_copy(finished=False), filenode="another"))
    assert store.ranges(ORDERS) == [a_range(0), a_range(1)]

    store.set_copy(a_copy(generation=Lsn(5), finished=False))
    store.set_copy(a_copy(ITEMS))
    assert (store.ranges(ORDERS), store.ranges(ITEMS)) == ([], [])


def test_a_range_of_another_generation_or_of_no_open_copy_is_not_remembered(store: CachedStore) -> None:
    store.set_copy(a_copy(finished=False))
    store.set_copy(a_copy(ITEMS))

    store.set_ranges([a_range(0, generation=Lsn(1)), a_range(0, ITEMS), a_range(3)])
    store.set_ranges([a_range(0, TableName("public", "unknown"))])

    assert store.ranges(ORDERS) == [a_range(3)]
    assert store.ranges(ITEMS) == store.ranges(TableName("public", "unknown")) == []


def test_a_copy_replaces_the_one_before_even_with_a_lower_generation(store: CachedStore) -> None:
    store.set_copy(a_copy())
    store.set_copy(a_copy(ITEMS))

    store.set_copy(a_copy(generation=Lsn(1), finished=False))

    assert store.copies() == {ORDERS: a_copy(generation=Lsn(1), finished=False), ITEMS: a_copy(ITEMS)}


def test_a_destination_table_is_remembered_as_applying_and_then_as_applied(store: CachedStore) -> None:
    store.set_destination_table(LAKE, a_destination_table(state=SchemaState.APPLYING))
    assert store.destination_tables(LAKE) == {ORDERS: a_destination_table(state=SchemaState.APPLYING)}

    store.set_destination_table(LAKE, a_destination_table())

    assert store.destination_tables(LAKE) == {ORDERS: a_destination_table()}
    assert store.destination_tables(Owner("other")) == {}


def test_a_mapping_belongs_to_one_owner_and_may_change(store: CachedStore) -> None:
    store.set_mapping(LAKE, ITEMS, TableName("main", "first"))

    store.set_mapping(LAKE, ITEMS, TableName("main", "second"))

    assert store.mapping(LAKE, ITEMS) == TableName("main", "second")
    assert store.mapping(CAPTURE, ITEMS) is None


def test_what_is_returned_is_a_copy(store: CachedStore) -> None:
    go_through(store, Init())
    store.set_copy(a_copy())

    store.phases(LAKE).clear()
    store.history(LAKE, ORDERS).clear()
    store.copies().clear()

    assert store.phases(LAKE) == {ORDERS: Init()}
    assert store.history(LAKE, ORDERS) == [Init()]
    assert store.copies() == {ORDERS: a_copy()}


def test_the_version_at_an_lsn_is_the_newest_that_began_there_or_before(store: CachedStore) -> None:
    first, second, last = a_version(20, columns=2), a_version(9, columns=1), a_version(LATE, columns=3)

    for version in (first, second, last):
        store.put(version)

    assert store.at(ORDERS, Lsn(8)) is None
    assert store.at(ORDERS, Lsn(9)) == second
    assert store.at(ORDERS, Lsn(19)) == second
    assert store.at(ORDERS, Lsn(20)) == first
    assert store.at(ORDERS, LATE) == last
    assert store.latest(ORDERS) == last
    assert store.latest(ITEMS) is None


def test_a_version_may_be_put_again_but_not_with_another_content(store: CachedStore) -> None:
    store.put(a_version(9))
    store.put(a_version(9))

    with pytest.raises(SchemaVersionConflict, match=r"public\.orders"):
        store.put(a_version(9, columns=2))

    assert store.at(ORDERS, Lsn(9)) == a_version(9)


def test_pruning_keeps_the_version_valid_at_the_bound_and_all_later_ones(store: CachedStore) -> None:
    for since in (1, 3, 5, 7):
        store.put(a_version(since, columns=since))
    store.put(a_version(1, ITEMS))

    dropped = store.prune(ORDERS, Lsn(6))

    assert dropped == 2
    assert store.at(ORDERS, Lsn(4)) is None
    assert store.at(ORDERS, Lsn(6)) == a_version(5, columns=5)
    assert store.latest(ORDERS) == a_version(7, columns=7)
    assert store.at(ITEMS, Lsn(1)) == a_version(1, ITEMS)
    assert store.prune(ORDERS, Lsn(6)) == 0


def test_pruning_before_the_first_version_drops_nothing(store: CachedStore) -> None:
    store.put(a_version(5))

    assert store.prune(ORDERS, Lsn(4)) == 0
    assert store.prune(ITEMS, LATE) == 0
    assert store.latest(ORDERS) == a_version(5)


def test_versions_from_an_lsn_on_are_forgotten_and_nothing_else(store: CachedStore) -> None:
    fill(store)
    store.put(a_version(5, ITEMS))
    of_copies = store.copies()

    store.forget(Lsn(5))
    store.forget(Lsn(5))

    assert store.latest(ORDERS) == a_version(3)
    assert store.latest(ITEMS) is None
    assert store.copies() == of_copies
    assert store.progress(LAKE) == LATE


def test_clearing_for_a_copy_leaves_versions_progress_and_mappings_and_no_way_back(store: CachedStore) -> None:
    fill(store)
    go_through(store, Init(), DataSync(), FinishedCopy(), SyncDone(LATE), Ready(), owner=Owner("other"))
    go_through(store, Init(), DataSync(), table=ITEMS)

    store.clear_for_copy(ORDERS)

    assert store.phases(LAKE) == {ORDERS: Init(), ITEMS: DataSync()}
    assert store.history(LAKE, ORDERS) == store.history(Owner("other"), ORDERS) == [Init()]
    assert ORDERS not in store.phases(CAPTURE)
    assert store.copies() == {}
    assert store.ranges(ORDERS) == []
    assert store.destination_tables(LAKE) == {}
    assert store.mapping(LAKE, ORDERS) == TableName("main", "o")
    assert store.progress(LAKE) == LATE
    assert store.at(ORDERS, Lsn(3)) == a_version(3)
    with pytest.raises(NothingToRollBack):
        store.rollback(LAKE, ORDERS)


def test_deleting_a_table_leaves_the_progress_of_its_owners_and_all_of_other_tables(store: CachedStore) -> None:
    fill(store, table=ITEMS)
    of_items_alone = everything(store)
    fill(store, table=ORDERS)

    store.delete_table(ORDERS)

    assert everything(store) == of_items_alone
    assert store.progress(LAKE) == LATE


@pytest.mark.parametrize("call", ["clear_for_copy", "delete_table"])
def test_an_unknown_table_can_be_cleared_and_deleted(store: CachedStore, call: str) -> None:
    fill(store)
    before = everything(store)

    getattr(store, call)(TableName("no", "such"))

    assert everything(store) == before


def test_a_closed_store_refuses_everything_but_another_close(store: CachedStore) -> None:
    store.close()
    store.close()

    with pytest.raises(StoreClosed):
        store.advance(LAKE, LATE)
    with pytest.raises(StoreClosed):
        store.progress(LAKE)


def test_threads_that_write_at_once_lose_nothing(store: CachedStore) -> None:
    tables = [TableName("public", f"t{number}") for number in range(20)]

    with ThreadPoolExecutor(4, thread_name_prefix="writer") as pool:
        list(pool.map(lambda table: go_through(store, Init(), DataSync(), table=table), tables))
        list(pool.map(lambda lsn: store.advance(LAKE, Lsn(lsn)), [3, 1, 9, 2, 8]))

    assert store.phases(LAKE) == dict.fromkeys(tables, DataSync())
    assert store.progress(LAKE) == Lsn(9)
