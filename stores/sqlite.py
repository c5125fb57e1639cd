"""A store in one file: the embedded default. One pipeline, one file, readable by its user alone.

Durable means on disk: WAL mode with `synchronous = full`. Several processes may have it open; writers take turns.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, assert_never

from schemas.errors import StoreError
from stores.cached import CachedStore
from stores.errors import StoreTooNew, StoreUnreachable, StoreUnreadable
from stores.relations import RELATIONS, Change, Drop, Put, Relation, Row

_APPLICATION_ID = int.from_bytes(b"pens", "big")
_PATIENCE_SECONDS = 30.0
_RETRY_SECONDS = 0.01

_MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "create table revision (only integer primary key check (only = 1), revision integer not null)",
        "insert into revision values (1, 0)",
        """create table phases (
            owner text not null, table_schema text not null, table_name text not null,
            history text not null,
            primary key (owner, table_schema, table_name)) without rowid""",
        "create table progress (owner text not null primary key, lsn text not null) without rowid",
        """create table copies (
            table_schema text not null, table_name text not null,
            log_id text not null, generation text not null, schema_id integer not null, filenode text not null,
            fingerprint text not null, finished integer not null, row_count integer not null,
            primary key (table_schema, table_name)) without rowid""",
        """create table destination_tables (
            owner text not null, table_schema text not null, table_name text not null,
            destination_schema text not null, destination_name text not null,
            schema_id integer not null, state text not null,
            primary key (owner, table_schema, table_name)) without rowid""",
        """create table mappings (
            owner text not null, table_schema text not null, table_name text not null,
            destination_schema text not null, destination_name text not null,
            primary key (owner, table_schema, table_name)) without rowid""",
        """create table schema_versions (
            table_schema text not null, table_name text not null, since text not null,
            schema_id integer not null, table_shape text not null,
            primary key (table_schema, table_name, since)) without rowid""",
    ),
    (
        """create table sources (
            owner text not null primary key,
            system_id text not null, database_oid integer not null, timeline integer not null) without rowid""",
    ),
    (
        "alter table copies add column log_from integer not null default 0",
        "alter table copies add column changes_from integer not null default 0",
        """create table copy_ranges (
            table_schema text not null, table_name text not null, range_index integer not null,
            generation text not null, file integer, first_block integer not null, end_block integer,
            snapshot text, row_count integer, byte_count integer, topic_end integer,
            primary key (table_schema, table_name, range_index)) without rowid""",
    ),
)
"""Migration n stands at place n - 1; `pragma user_version` says how many are applied. Never edit one, add one."""


class _Statements:
    """The SQL of one relation. Its names are constants of this package, so they may stand in the text."""

    def __init__(self, relation: Relation[Any, Any]) -> None:
        columns = ", ".join(relation.columns)
        places = ", ".join("?" for _ in relation.columns)
        key = " and ".join(f"{column} = ?" for column in relation.key_columns)
        self.select = f"select {columns} from {relation.name}"  # noqa: S608 -- names are our constants
        self.put = f"insert or replace into {relation.name} ({columns}) values ({places})"  # noqa: S608 -- likewise
        self.drop = f"delete from {relation.name} where {key}"  # noqa: S608 -- likewise


_STATEMENTS = {relation: _Statements(relation) for relation in RELATIONS}


class RowsInSqlite:
    """Rows in one SQLite file, created with mode 0600 where there is none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _errors_of(path):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._connection = sqlite3.connect(
                path, timeout=_PATIENCE_SECONDS, isolation_level=None, check_same_thread=False
            )
        try:
            with _errors_of(path):
                self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        with self._transaction():
            applied = self._applied_migrations()
            for number, statements in enumerate(_MIGRATIONS[applied:], start=applied + 1):
                for statement in statements:
                    self._connection.execute(statement)
                self._connection.execute(f"pragma user_version = {number}")
            self._connection.execute(f"pragma application_id = {_APPLICATION_ID}")
        self._connection.execute("pragma synchronous = full")
        mode = self._changed_mode()
        if mode != "wal":
            raise StoreError(
                f"The file system of '{self._path}' does not let SQLite keep a write-ahead log.",
                solution="Put the store on a local disk.",
            )

    def _changed_mode(self) -> str:
        """The mode of the journal after the change to a write-ahead log, for whose lock SQLite itself does not wait."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                return str(self._one("pragma journal_mode = wal"))
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(_RETRY_SECONDS)

    def _applied_migrations(self) -> int:
        is_ours = self._one("pragma application_id") == _APPLICATION_ID
        if not is_ours and self._one("select count(*) from sqlite_master") > 0:
            raise StoreUnreadable(
                f"'{self._path}' is a SQLite database, but not a store of penstock.",
                solution="Name another file for the store.",
            )
        applied = int(self._one("pragma user_version")) if is_ours else 0
        if applied > len(_MIGRATIONS):
            raise StoreTooNew(
                f"The store '{self._path}' was written by a newer penstock: it has migration {applied}, this one knows "
                f"{len(_MIGRATIONS)}."
            )
        return applied

    @contextlib.contextmanager
    def writing(self) -> Iterator[int]:
        with _errors_of(self._path), self._transaction():
            yield self._one("select revision from revision")

    def rows(self, relation: Relation[Any, Any]) -> Iterable[Row]:
        return self._connection.execute(_STATEMENTS[relation].select).fetchall()

    def save(self, changes: Sequence[Change], revision: int) -> None:
        for change in changes:
            match change:
                case Put(relation=relation, key=key, value=value):
                    self._connection.execute(_STATEMENTS[relation].put, relation.cells(key, value))
                case Drop(relation=relation, key=key):
                    self._connection.execute(_STATEMENTS[relation].drop, relation.key_to_cells(key))
                case _:
                    assert_never(change)
        self._connection.execute("update revision set revision = ?", [revision])

    def close(self) -> None:
        self._connection.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("begin immediate")
        try:
            yield
            self._connection.execute("commit")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("rollback")
            raise

    def _one(self, query: str) -> Any:  # noqa: ANN401 -- a cell of SQLite
        row = self._connection.execute(query).fetchone()
        if row is None:
            raise StoreUnreadable(f"The store '{self._path}' has lost its revision.")
        return row[0]


class SqliteStore(CachedStore):
    """StateStore, SchemaStore and TableLifecycleStore in the file at `path`."""

    def __init__(self, path: Path) -> None:
        super().__init__(RowsInSqlite(path))


_MANUAL: dict[int, str] = {
    sqlite3.SQLITE_FULL: "Free space on its disk, then start again.",
    sqlite3.SQLITE_READONLY: "Give this user the right to write the file and its folder.",
    sqlite3.SQLITE_CANTOPEN: "Give this user the right to write the file and its folder.",
    sqlite3.SQLITE_IOERR: "Look after the disk, then start again.",
}


@contextlib.contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    """Turns what SQLite and the file system say into our errors."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"The store '{path}' cannot be opened: {error.strerror}.",
            solution="Make its folder with `mkdir -p`, or give this user the right to write there.",
        ) from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise StoreUnreachable(
                f"Another process has held the lock of the store '{path}' for {_PATIENCE_SECONDS:g} s.",
                solution=f"Find it with `fuser {path}` and stop it.",
            ) from error
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            raise StoreUnreadable(f"The store '{path}' cannot be read: {error}.") from error
        raise StoreError(f"The store '{path}' failed: {error}.", solution=_MANUAL.get(code)) from error
