"""What the durable stores promise beyond the process that writes: reopening, other processes, damage, equality."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql
from psycopg.conninfo import make_conninfo

from schemas.errors import PenstockError, Retry, StoreError
from schemas.identifiers import TableName
from schemas.lsn import Lsn
from schemas.phases import DataSync, FinishedCopy, ForbiddenTransition, Init, Ready, SyncDone
from stores.cached import CachedStore
from stores.errors import StoreTaken, StoreTooNew, StoreUnreachable, StoreUnreadable
from stores.memory import MemoryStore
from stores.postgres import PostgresStore
from stores.sqlite import SqliteStore
from stores.state import CAPTURE, SchemaState, SourceIdentity
from tests.contract.store_values import (
    FAILED,
    ITEMS,
    LAKE,
    LATE,
    ORDERS,
    SERVER,
    Postgres,
    a_copy,
    a_destination_table,
    a_pipeline,
    a_range,
    a_version,
    everything,
    fill,
    go_through,
)

Opener: TypeAlias = Callable[[], CachedStore]


@pytest.fixture(params=["sqlite", "postgres"])
def open_durable(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens one and the same durable store as often as it is called."""
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "store.sqlite")
    dsn, pipeline = request.getfixturevalue("postgres").dsn(), a_pipeline()
    return lambda: PostgresStore(dsn, pipeline)


@pytest.fixture
def empty_database(postgres: Postgres) -> str:
    """The DSN of a database in which no store was ever opened."""
    name = f"db_{a_pipeline()}"
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    return postgres.dsn(database=name)


def test_everything_is_there_again_after_reopening(open_durable: Opener) -> None:
    with open_durable() as store:
        fill(store)
        fill(store, owner=CAPTURE, table=ITEMS)
        go_through(store, Ready(), Init(), DataSync(), owner=CAPTURE, table=ITEMS)
        written = everything(store)

    with open_durable() as store:
        reopened = everything(store)

    assert reopened == written


def test_what_was_forgotten_stays_forgotten_after_reopening(open_durable: Opener) -> None:
    with open_durable() as store:
        fill(store, table=ITEMS)
        fill(store, table=ORDERS)
        store.clear_for_copy(ITEMS)
        store.delete_table(ORDERS)
        store.prune(ITEMS, LATE)
        written = everything(store)

    with open_durable() as store:
        reopened = everything(store)

    assert reopened == written


def test_a_write_is_durable_when_it_returns_even_if_nobody_closes_the_store(open_durable: Opener) -> None:
    with open_durable() as writer:
        writer.advance(LAKE, LATE)

        with open_durable() as reader:
            assert reader.progress(LAKE) == LATE


def test_a_second_writer_never_moves_progress_back(open_durable: Opener) -> None:
    with open_durable() as first, open_durable() as second:
        first.advance(LAKE, Lsn(20))

        stored = second.advance(LAKE, Lsn(10))

        assert stored == second.progress(LAKE) == Lsn(20)


def test_a_second_writer_is_held_to_the_phases_that_the_first_wrote(open_durable: Opener) -> None:
    with open_durable() as first, open_durable() as second:
        go_through(first, Init(), DataSync(), FinishedCopy())

        with pytest.raises(ForbiddenTransition, match="from FinishedCopy to DataSync"):
            second.set_phase(LAKE, ORDERS, DataSync())

        assert second.phases(LAKE) == {ORDERS: FinishedCopy()}


def test_writers_that_take_turns_lose_nothing(open_durable: Opener) -> None:
    tables = [TableName("public", f"t{number}") for number in range(10)]

    with open_durable() as first, open_durable() as second, ThreadPoolExecutor(2, "writer") as pool:
        list(pool.map(lambda table: go_through(first, Init(), table=table), tables))
        list(
            pool.map(
                lambda job: go_through(job[0], DataSync(), table=job[1]),
                [((first, second)[number % 2], table) for number, table in enumerate(tables)],
            )
        )

    with open_durable() as store:
        assert store.phases(LAKE) == dict.fromkeys(tables, DataSync())


def test_a_store_that_was_claimed_since_refuses_what_its_former_owner_writes_until_that_one_claims_again(
    open_durable: Opener,
) -> None:
    with open_durable() as first, open_durable() as second:
        first.claim()
        first.advance(LAKE, Lsn(10))
        second.claim()

        with pytest.raises(StoreTaken):
            first.advance(LAKE, Lsn(20))
        second.advance(LAKE, Lsn(30))
        with pytest.raises(StoreTaken):
            first.set_copy(a_copy())

        first.claim()
        assert first.progress(LAKE) == Lsn(30)
        first.advance(LAKE, Lsn(40))
        with pytest.raises(StoreTaken):
            second.advance(LAKE, Lsn(50))


def test_stores_that_are_opened_at_once_for_the_first_time_all_open(tmp_path: Path, empty_database: str) -> None:
    pipeline = a_pipeline()
    openers: list[Opener] = [lambda: PostgresStore(empty_database, pipeline)] * 4
    openers += [lambda: SqliteStore(tmp_path / "store.sqlite")] * 4

    def advance(numbered: tuple[int, Opener]) -> None:
        number, opener = numbered
        with opener() as store:
            store.advance(LAKE, Lsn(number))

    with ThreadPoolExecutor(len(openers), "opener") as pool:
        list(pool.map(advance, enumerate(openers)))

    with openers[0]() as store:
        assert store.progress(LAKE) == Lsn(3)
    with openers[-1]() as store:
        assert store.progress(LAKE) == Lsn(7)


def test_pipelines_in_one_database_do_not_see_each_other(postgres: Postgres) -> None:
    with PostgresStore(postgres.dsn(), a_pipeline()) as shop, PostgresStore(postgres.dsn(), a_pipeline()) as bank:
        untouched = everything(bank)
        fill(shop)
        fill(bank)

        bank.delete_table(ORDERS)

        assert shop.phases(LAKE) == {ORDERS: FAILED}
        assert everything(bank) == untouched | {"progress": [None, LATE], "sources": [None, SERVER]}


def test_a_sqlite_store_is_readable_by_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"

    with SqliteStore(path) as store:
        store.advance(LAKE, LATE)

        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}

    assert modes == dict.fromkeys(("store.sqlite", "store.sqlite-wal", "store.sqlite-shm"), 0o600)


def test_a_sqlite_store_writes_ahead_and_waits_for_the_disk(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "store.sqlite") as store:
        connection: sqlite3.Connection = store._rows._connection  # type: ignore[attr-defined]

        assert connection.execute("pragma journal_mode").fetchone() == ("wal",)
        assert connection.execute("pragma synchronous").fetchone() == (2,)


def test_a_file_that_is_no_database_is_unreadable_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    path.write_bytes(b"not a database" * 100)

    with pytest.raises(StoreUnreadable, match=r"store\.sqlite") as refused:
        SqliteStore(path)

    assert "backup" in refused.value.solution
    assert path.read_bytes() == b"not a database" * 100


def test_the_database_of_another_program_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    other = sqlite3.connect(path)
    other.execute("create table theirs (id integer)")
    other.close()
    before = path.read_bytes()

    with pytest.raises(StoreUnreadable, match="not a store of penstock"):
        SqliteStore(path)

    assert path.read_bytes() == before


def test_a_sqlite_store_in_a_missing_folder_is_an_error_with_a_solution(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file") as refused:
        SqliteStore(tmp_path / "missing" / "store.sqlite")

    assert "mkdir -p" in refused.value.solution


def test_a_sqlite_store_of_a_newer_penstock_is_refused(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "store.sqlite").close()
    newer = sqlite3.connect(tmp_path / "store.sqlite")
    newer.execute("pragma user_version = 1000")
    newer.close()

    with pytest.raises(StoreTooNew, match="migration 1000") as refused:
        SqliteStore(tmp_path / "store.sqlite")

    assert "Upgrade this penstock" in refused.value.solution


def test_a_damaged_row_is_unreadable(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "store.sqlite") as store:
        store.advance(LAKE, LATE)
    damager = sqlite3.connect(tmp_path / "store.sqlite")
    damager.execute("update progress set lsn = 'far'")
    damager.commit()
    damager.close()

    with pytest.raises(StoreUnreadable, match="'progress'"):
        SqliteStore(tmp_path / "store.sqlite")


def test_a_postgres_store_of_a_newer_penstock_is_refused(empty_database: str) -> None:
    PostgresStore(empty_database, a_pipeline()).close()
    with psycopg.connect(empty_database) as connection:
        connection.execute("insert into penstock.store_migrations (number, name) values (1000, '1000_later')")

    with pytest.raises(StoreTooNew, match="migration 1000"):
        PostgresStore(empty_database, a_pipeline())


def test_a_postgres_that_does_not_answer_may_be_tried_again() -> None:
    dsn = "postgresql://someone:secret@127.0.0.1:1/nowhere"

    with pytest.raises(StoreUnreachable, match=r"127\.0\.0\.1:1/nowhere") as refused:
        PostgresStore(dsn, a_pipeline())

    assert refused.value.retry is Retry.TIMED
    assert "secret" not in refused.value.reason + refused.value.solution


def test_a_dsn_that_cannot_be_understood_is_not_repeated() -> None:
    with pytest.raises(StoreError, match="DSN") as refused:
        PostgresStore("host=localhost secret", a_pipeline())

    assert "secret" not in refused.value.reason + refused.value.solution
    assert refused.value.__cause__ is None


def test_a_user_who_may_not_create_the_schema_is_told_what_a_dba_must_run(empty_database: str) -> None:
    role = f"user_{a_pipeline()}"
    with psycopg.connect(empty_database) as connection:
        connection.execute(sql.SQL("create role {} login password 'pw'").format(sql.Identifier(role)))
    dsn = make_conninfo(empty_database, user=role, password="pw")  # noqa: S106 -- a role of this test

    with pytest.raises(StoreError, match="permission denied") as refused:
        PostgresStore(dsn, a_pipeline())

    with psycopg.connect(empty_database) as connection:
        connection.execute(sql.SQL("create schema penstock authorization {}").format(sql.Identifier(role)))
    assert "create schema penstock authorization" in refused.value.solution
    PostgresStore(dsn, a_pipeline()).close()


def test_a_lost_connection_fails_one_write_and_the_next_one_finds_what_is_durable(postgres: Postgres) -> None:
    with PostgresStore(postgres.dsn(), a_pipeline()) as store:
        store.advance(LAKE, Lsn(10))
        backend = store._rows._connection.info.backend_pid  # type: ignore[attr-defined]
        with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
            connection.execute("select pg_terminate_backend(%s, 10000)", [backend])

        with pytest.raises(StoreUnreachable):
            store.advance(LAKE, Lsn(20))

        assert store.progress(LAKE) == Lsn(10)
        assert store.advance(LAKE, Lsn(20)) == Lsn(20)


def outcome(store: CachedStore, method: str, arguments: tuple[Any, ...]) -> object:
    """What a call returns, or the kind and reason of what it raises."""
    try:
        return getattr(store, method)(*arguments)
    except PenstockError as error:
        return type(error), error.reason


tables = st.sampled_from([ORDERS, ITEMS])
owners = st.sampled_from([CAPTURE, LAKE])
lsns = st.integers(0, 9).map(Lsn)
phases = st.sampled_from([Init(), DataSync(), FinishedCopy(), Ready(), FAILED]) | lsns.map(SyncDone)


def a_call(method: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, tuple[Any, ...]]]:
    return st.tuples(st.just(method), st.tuples(*arguments))


calls = st.one_of(
    a_call("set_phase", owners, tables, phases),
    a_call("rollback", owners, tables),
    a_call("advance", owners, lsns),
    a_call("set_source", owners, st.builds(SourceIdentity, st.just("1"), st.just(5), st.integers(1, 2))),
    a_call("set_copy", st.builds(a_copy, tables, lsns, finished=st.booleans())),
    a_call("set_destination_table", owners, st.builds(a_destination_table, tables, st.sampled_from(SchemaState))),
    a_call("set_mapping", owners, tables, tables),
    a_call("put", st.builds(a_version, lsns, tables, st.integers(1, 2))),
    a_call("prune", tables, lsns),
    a_call("set_ranges", st.lists(st.builds(a_range, st.integers(0, 3), tables, lsns, finished=st.booleans()))),
    a_call("clear_for_copy", tables),
    a_call("delete_table", tables),
)


@settings(max_examples=25)
@given(script=st.lists(calls, min_size=10, max_size=30))
def test_the_three_stores_stay_equal_whatever_is_done(
    script: list[tuple[str, tuple[Any, ...]]], tmp_path_factory: pytest.TempPathFactory, postgres: Postgres
) -> None:
    path, dsn, pipeline = tmp_path_factory.mktemp("equal") / "store.sqlite", postgres.dsn(), a_pipeline()

    with MemoryStore() as memory:
        with SqliteStore(path) as sqlite, PostgresStore(dsn, pipeline) as server:
            for method, arguments in script:
                expected = outcome(memory, method, arguments)
                assert outcome(sqlite, method, arguments) == outcome(server, method, arguments) == expected
            assert everything(sqlite) == everything(server) == everything(memory)

        with SqliteStore(path) as sqlite, PostgresStore(dsn, pipeline) as server:
            assert everything(sqlite) == everything(server) == everything(memory)
