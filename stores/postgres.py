"""A store in a Postgres database, in its schema `penstock`: for a pipeline whose stages run on different hosts.

Any number of pipelines share it, each with its rows. Any number of processes may open it at once: migrations happen
under an advisory lock, and writers of one pipeline take turns on its row. A lost connection is opened again by the
next call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, TypeAlias, assert_never

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.string import TextLoader

from schemas.errors import StoreError
from schemas.identifiers import PipelineName
from stores.cached import CachedStore
from stores.errors import StoreTooNew, StoreUnreachable
from stores.relations import RELATIONS, Change, Drop, Put, Relation, Row

_Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

_MIGRATION_LOCK = int.from_bytes(b"penstore", "big")
_CONNECTION_DEFAULTS = {"connect_timeout": "10", "tcp_user_timeout": "30000", "application_name": "penstock store"}

_SETTINGS = sql.SQL("""
    select set_config('lock_timeout', '30s', true),
           set_config('statement_timeout', '60s', true),
           set_config('synchronous_commit', coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on'), true)
""")
"""Waits have an end, and durable means durable, whatever the database is set to. They end with their transaction."""

_LOCKED_REVISION = sql.SQL("""
    insert into penstock.store_pipelines as known (pipeline, revision) values (%s, 0)
    on conflict (pipeline) do update set revision = known.revision
    returning revision
""")


@dataclass(frozen=True)
class _Migration:
    number: int
    name: str
    script: bytes


class _Statements:
    """The SQL of one relation, composed once. Each has the pipeline as its first parameter."""

    def __init__(self, relation: Relation[Any, Any]) -> None:
        table = sql.Identifier("penstock", f"store_{relation.name}")
        columns = sql.SQL(", ").join(map(sql.Identifier, relation.columns))
        key = sql.SQL(", ").join(map(sql.Identifier, ("pipeline", *relation.key_columns)))
        self.select = sql.SQL("select {} from {} where pipeline = %s").format(columns, table)
        self.put = sql.SQL("insert into {} (pipeline, {}) values (%s, {}) on conflict ({}) do update set {}").format(
            table,
            columns,
            sql.SQL(", ").join(sql.Placeholder() * len(relation.columns)),
            key,
            sql.SQL(", ").join(
                sql.SQL("{} = excluded.{}").format(sql.Identifier(column), sql.Identifier(column))
                for column in relation.value_columns
            ),
        )
        self.drop = sql.SQL("delete from {} where pipeline = %s and {}").format(
            table,
            sql.SQL(" and ").join(sql.SQL("{} = %s").format(sql.Identifier(column)) for column in relation.key_columns),
        )


_STATEMENTS = {relation: _Statements(relation) for relation in RELATIONS}


class RowsInPostgres:
    """The rows of one pipeline. The connection is opened by the first transaction, and again after it was lost."""

    def __init__(self, dsn: str, pipeline: PipelineName) -> None:
        self._dsn = _completed(dsn)
        self._pipeline = pipeline
        self._connection: _Connection | None = None

    @contextlib.contextmanager
    def writing(self) -> Iterator[int]:
        with _errors_of(self._dsn):
            connection = self._open()
            with connection.transaction():
                connection.execute(_SETTINGS)
                (revision,) = _only_row(connection.execute(_LOCKED_REVISION, [self._pipeline]))
                yield revision

    def rows(self, relation: Relation[Any, Any]) -> Iterable[Row]:
        return self._open().execute(_STATEMENTS[relation].select, [self._pipeline]).fetchall()

    def save(self, changes: Sequence[Change], revision: int) -> None:
        connection = self._open()
        for change in changes:
            match change:
                case Put(relation=relation, key=key, value=value):
                    connection.execute(_STATEMENTS[relation].put, [self._pipeline, *relation.cells(key, value)])
                case Drop(relation=relation, key=key):
                    connection.execute(_STATEMENTS[relation].drop, [self._pipeline, *relation.key_to_cells(key)])
                case _:
                    assert_never(change)
        connection.execute(
            "update penstock.store_pipelines set revision = %s where pipeline = %s", [revision, self._pipeline]
        )

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _open(self) -> _Connection:
        if self._connection is None or self._connection.closed:
            self._connection = _connected(self._dsn)
        return self._connection


class PostgresStore(CachedStore):
    """StateStore, SchemaStore and TableLifecycleStore of `pipeline` in the database that `dsn` names."""

    def __init__(self, dsn: str, pipeline: PipelineName) -> None:
        super().__init__(RowsInPostgres(dsn, pipeline))


def _completed(dsn: str) -> str:
    """The DSN with our defaults where it says nothing."""
    try:
        return make_conninfo("", **{**_CONNECTION_DEFAULTS, **conninfo_to_dict(dsn)})
    except psycopg.Error:
        raise StoreError(  # without its cause: that one may quote a password
            "The DSN of the store cannot be understood.",
            solution="Write it as `postgresql://user@host:5432/database`.",
        ) from None


def _connected(dsn: str) -> _Connection:
    """A connection to a database that has every migration, with JSON left as text."""
    # No prepared statements: they do not survive a pooler such as pgbouncer.
    connection = psycopg.connect(dsn, autocommit=True, prepare_threshold=None)
    try:
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        connection.adapters.register_loader("json", TextLoader)
        _migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(connection: _Connection) -> None:
    with connection.transaction():
        connection.execute(_SETTINGS)
        connection.execute("select pg_advisory_xact_lock(%s)", [_MIGRATION_LOCK])
        # Asked before, as `if not exists` wants the right to create even where there is nothing to create.
        (has_schema, has_migrations) = _only_row(
            connection.execute(
                "select to_regnamespace('penstock') is not null, to_regclass('penstock.store_migrations') is not null"
            )
        )
        if not has_schema:
            connection.execute("create schema penstock")
        if not has_migrations:
            connection.execute("""
                create table penstock.store_migrations (
                    number integer primary key, name text not null, applied_at timestamptz not null default now())
            """)
        (applied,) = _only_row(connection.execute("select coalesce(max(number), 0) from penstock.store_migrations"))
        migrations = _known_migrations()
        if applied > migrations[-1].number:
            raise StoreTooNew(
                f"The store in Postgres was written by a newer penstock: it has migration {applied}, this one knows "
                f"{migrations[-1].number}."
            )
        for migration in migrations[applied:]:
            connection.execute(migration.script)
            connection.execute(
                "insert into penstock.store_migrations (number, name) values (%s, %s)",
                [migration.number, migration.name],
            )


def _known_migrations() -> list[_Migration]:
    """The files `migrations/<number>_<name>.sql`, in their order; numbers begin with 1 and leave none out."""
    files = sorted(
        (file for file in resources.files("stores").joinpath("migrations").iterdir() if file.name.endswith(".sql")),
        key=lambda file: file.name,
    )
    return [
        _Migration(int(file.name.split("_", 1)[0]), file.name.removesuffix(".sql"), file.read_bytes()) for file in files
    ]


def _only_row(cursor: psycopg.Cursor[tuple[Any, ...]]) -> tuple[Any, ...]:
    row = cursor.fetchone()
    assert row is not None  # noqa: S101 -- every statement asked here gives exactly one
    return row


@contextlib.contextmanager
def _errors_of(dsn: str) -> Iterator[None]:
    """Turns what Postgres says into our errors; what is not known here needs a human."""
    try:
        yield
    except psycopg.Error as error:
        where = _place(dsn)
        what = error.diag.message_primary or (str(error).strip() or type(error).__name__).splitlines()[0]
        match error:
            case errors.InsufficientPrivilege():
                raise StoreError(
                    f"The store in Postgres at {where} refuses this user: {what}.",
                    solution="Let a DBA run `create schema penstock authorization <this user>` in that database.",
                ) from error
            case errors.LockNotAvailable() | errors.QueryCanceled():
                raise StoreUnreachable(
                    f"The store in Postgres at {where} is locked: {what}.",
                    solution="Find who holds it with `select * from pg_locks where not granted`, and end that session.",
                ) from error
            case psycopg.OperationalError():
                raise StoreUnreachable(
                    f"The store in Postgres at {where} does not answer: {what}.",
                    solution="Start that server, or correct the DSN of the store.",
                ) from error
            case _:
                raise StoreError(f"The store in Postgres at {where} failed: {what}.") from error


def _place(dsn: str) -> str:
    """Host, port and database: never the password."""
    parts = conninfo_to_dict(dsn)
    return f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"
