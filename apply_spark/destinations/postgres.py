"""Another Postgres: each table a mirror under its own name, progress in the schema `penstock` of the same database.

Rows come through a staging table, by COPY: those that Spark computes from its executors, each in a session of its own,
those that are here already from this process. One transaction then merges the tables of an interval and stores the
progress. One session lives as long as apply and holds an advisory lock, so that there is one writer. The next copy of a
table is built beside its mirror (postgres_beside.py).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import psycopg
import stamina
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import BaseModel, Field, SecretStr

from apply_spark.destination import ALL_MODES, Batch
from apply_spark.destinations.postgres_beside import beside, copies_beside, put_in_place, refuse_names_of_copies
from apply_spark.destinations.postgres_merge import Staged, append, merge, settle
from apply_spark.destinations.postgres_mirror import (
    OWN_SCHEMA,
    alter_mirror,
    held_types,
    make_mirror,
    make_schema,
    shape_of,
)
from apply_spark.destinations.postgres_refusals import connection_refused, progress_refusals, refusals, unheld_values
from apply_spark.destinations.postgres_staging import ATTEMPT, Staging, copy_in, copy_in_from_executors
from apply_spark.errors import DestinationInUse, DestinationTaken, NotHeld, TableFailed
from apply_spark.progress import Progress
from apply_spark.rows import Rows, SparkRows
from schemas.errors import ConfigError
from schemas.failpoints import failpoint
from schemas.identifiers import DestinationName, TableName
from schemas.settings import checked
from schemas.table import TableSchema
from stores.patient_session import PatientSession

_SETTINGS = {
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "lc_monetary": "C",
    "xmloption": "content",
    "search_path": "pg_catalog",
    "idle_in_transaction_session_timeout": "0",
    "statement_timeout": "0",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
"""How values are read, as capture has them printed. And a server that lost us to the network notices, which gives the
lock free."""
_NETWORK = {
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",  # ms: for what was sent and never arrived; keepalives come only while all is quiet
}
"""A network that is cut ends a session, also while it waits for an answer."""
_LEAVING_SECONDS = 3.0
"""A session that was closed has its lock until the server has noticed."""
_OWN = sql.Identifier(OWN_SCHEMA)
_OWN_TABLES = sql.SQL("""
create table if not exists {own}.destination (
    name text primary key, owner text not null, version bigint not null,
    log_id text, lsn numeric(20), epoch bigint, log_offset bigint, commit_ts bigint);
create table if not exists {own}.tables (
    destination text, schema_name text, table_name text, progress json not null,
    primary key (destination, schema_name, table_name));
""").format(own=_OWN)
_HOLDER = """
    select pid from pg_locks
     where locktype = 'advisory' and granted and objsubid = 1
       and database = (select oid from pg_database where datname = current_database())
       and (classid::bigint << 32 | objid::bigint) = hashtextextended(%s, 0)
"""
_DURABLE = """
    select set_config('synchronous_commit', coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on'), true)
"""


class PostgresOptions(BaseModel, frozen=True, extra="forbid"):
    """`[destinations.NAME]` with `type = "postgres"`."""

    dsn: SecretStr = Field(description="How to reach the database: a URL or key=value pairs, as libpq takes them.")
    lock_timeout: timedelta = Field(
        default=timedelta(seconds=2),
        description="How long all tables wait while another session holds a mirror. Then that one is held, and tried"
        " again later.",
    )
    patience: timedelta = Field(
        default=timedelta(seconds=30),
        description="After how long a silence of the server it is asked, over another connection, whether it still"
        " works for apply.",
    )


class PostgresDestination:
    """One database."""

    modes = ALL_MODES

    def __init__(self, name: DestinationName, options: Mapping[str, Any]) -> None:
        self.name = name
        read = checked(PostgresOptions, options, f"destinations.{name}")
        self._dsn = _session_dsn(name, read.dsn.get_secret_value(), read.lock_timeout)
        self._patience = read.patience.total_seconds()
        self._owner = secrets.token_hex(8)
        self._version = 0
        self._session: psycopg.Connection | None = None
        self._copies: frozenset[TableName] = frozenset()
        """Tables whose next copy is built beside their mirror; that copy is what a transaction writes to."""

    def startup(self) -> Progress | None:
        if self._session is not None:
            raise DestinationInUse(f"This apply has opened destination {self.name} already.")
        self._session = db = self._open()
        try:
            with progress_refusals():
                for attempt in stamina.retry_context(on=DestinationInUse, attempts=None, timeout=_LEAVING_SECONDS):
                    with attempt:
                        self._lock(db)
                with db.transaction():
                    make_schema(db, OWN_SCHEMA)
                    db.execute(_OWN_TABLES)
                    self._drop_staged()
                    return self._taken()
        except BaseException:
            self.shutdown()
            raise

    def shutdown(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _lock(self, db: psycopg.Connection) -> None:
        key = f"penstock {self.name}"
        if db.execute("select pg_try_advisory_lock(hashtextextended(%s, 0))", [key]).fetchone() == (True,):
            return
        holder = db.execute(_HOLDER, [key]).fetchone()
        raise DestinationInUse(
            f"Another apply writes to destination {self.name}.",
            solution=f"{DestinationInUse.solution} If it is gone and its session has stayed at the server, end that:"
            f" select pg_terminate_backend({holder[0] if holder else 'PID'});",
        )

    def drop_table_for_copy(self, schema: TableSchema, progress: Progress) -> None:
        if schema.name.schema == OWN_SCHEMA:
            raise TableFailed(schema.name, NotHeld("The schema penstock of a destination is penstock's own."))
        refuse_names_of_copies(schema.name)
        with self._writing(progress) as db, refusals(schema.name):
            make_schema(db, schema.name.schema)
            if shape_of(db, schema.name):
                self._copies |= {schema.name}
            make_mirror(db, schema, self._written(schema.name))

    def write_table_rows(self, schema: TableSchema, rows: Rows, progress: Progress) -> None:
        with self._staged([(schema, rows)]) as (staged,), self._writing(progress) as db, refusals(schema.name):
            settle(db, staged)
            with unheld_values(db, staged):
                append(db, staged, self._mirror(schema))

    def write_events(self, batch: Batch) -> None:
        with (
            self._staged([(changes.schema, changes.rows) for changes in batch.tables]) as all_staged,
            self._writing(batch.progress) as db,
        ):
            for alteration in batch.altered:
                failpoint("postgres.altering", psycopg.OperationalError)
                with refusals(alteration.after.name):
                    alter_mirror(db, alteration, self._mirror(alteration.after))
                failpoint("postgres.altered", psycopg.OperationalError)
            for changes, staged in zip(batch.tables, all_staged, strict=True):
                with refusals(changes.schema.name):
                    settle(db, staged)
                    with unheld_values(db, staged):
                        merge(db, changes, staged, self._mirror(changes.schema))
                failpoint("postgres.merged", psycopg.OperationalError)

    def save_progress(self, progress: Progress) -> None:
        with self._writing(progress):
            pass

    def _written(self, table: TableName) -> TableName:
        return beside(table) if table in self._copies else table

    def _mirror(self, schema: TableSchema) -> sql.Identifier:
        """What is written to, in this transaction."""
        return sql.Identifier(*self._written(schema.name))

    @contextmanager
    def _staged(self, tables: Sequence[tuple[TableSchema, Rows]]) -> Iterator[list[Staged]]:
        """The rows of each table in a staging table, written before the transaction that merges them."""
        with progress_refusals():
            try:
                staged = [self._stage(number, *each) for number, each in enumerate(tables)]
                failpoint("postgres.staged", psycopg.OperationalError)
                yield staged
            finally:
                with suppress(psycopg.Error):
                    self._drop_staged()

    def _stage(self, number: int, schema: TableSchema, rows: Rows) -> Staged:
        """Rows that Spark computes are written by its executors, those that are here by this process."""
        db, table = self._connected, sql.Identifier(OWN_SCHEMA, f"{self._prefix}{self._owner}_{number}")
        make = sql.SQL("create unlogged table {} ({})")
        with refusals(schema.name):
            types = tuple(held_types(db, schema))
            if isinstance(rows, SparkRows):
                frame = rows.frame()
                staging = Staging(schema, tuple(frame.columns))
                db.execute(make.format(table, staging.definition(ATTEMPT)))
                attempts = copy_in_from_executors(self._dsn, self._patience, table, staging, frame)
                return Staged(schema, table, types, attempts)
            arrow = rows.arrow()
            staging = Staging(schema, tuple(arrow.column_names))
            db.execute(make.format(table, staging.definition()))
            copy_in(db, table, [staging.lines(arrow)])
            return Staged(schema, table, types)

    def _drop_staged(self) -> None:
        """Also what a process left that ended in the middle."""
        left = self._connected.execute(
            "select relname from pg_class where relnamespace = %s::regnamespace and starts_with(relname, %s)",
            [OWN_SCHEMA, self._prefix],
        ).fetchall()
        for (name,) in left:
            self._connected.execute(sql.SQL("drop table if exists {}").format(sql.Identifier(OWN_SCHEMA, name)))

    @property
    def _prefix(self) -> str:
        """What the names of this destination's staging tables begin with."""
        return f"staged_{hashlib.sha256(self.name.encode()).hexdigest()[:8]}_"

    @property
    def _connected(self) -> psycopg.Connection:
        assert self._session is not None  # noqa: S101 -- startup comes first
        return self._session

    @contextmanager
    def _writing(self, progress: Progress) -> Iterator[psycopg.Connection]:
        """A transaction that begins with compare-and-set and the progress, and ends with copies that are ready."""
        db = self._connected
        with progress_refusals():
            failpoint("postgres.beginning", psycopg.OperationalError)
            with db.transaction():
                self._claim(db, progress)
                failpoint("postgres.progress_written", psycopg.OperationalError)
                yield db
                put_in_place(db, self._copies, progress)
                failpoint("postgres.committing", psycopg.OperationalError)
            failpoint("postgres.committed", psycopg.OperationalError)
        self._version += 1

    def _claim(self, db: psycopg.Connection, progress: Progress) -> None:
        """Compare-and-set of the owner and the version, and the progress of every table."""
        head, tables = progress.stored()
        db.execute(_DURABLE)
        changed = db.execute(
            sql.SQL(
                """update {}.destination
                      set version = version + 1, log_id = %s, lsn = %s, epoch = %s, log_offset = %s, commit_ts = %s
                    where name = %s and owner = %s and version = %s"""
            ).format(_OWN),
            [*head, self.name, self._owner, self._version],
        ).rowcount
        if changed != 1:
            raise DestinationTaken(f"Another apply has written to destination {self.name}.")
        forgotten = sql.SQL("delete from {}.tables where destination = %s returning schema_name, table_name")
        before = [TableName(*table) for table in db.execute(forgotten.format(_OWN), [self.name]).fetchall()]
        self._copies = copies_beside(db, {*before, *progress.tables})
        db.execute(
            sql.SQL("insert into {}.tables select %s, * from unnest(%s::text[], %s::text[], %s::json[])").format(_OWN),
            [self.name, *tables],
        )

    def _taken(self) -> Progress | None:
        """The stored progress; from now on nobody writes who had the destination before."""
        db = self._connected
        row = db.execute(
            sql.SQL(
                """insert into {}.destination as known (name, owner, version) values (%s, %s, 0)
                   on conflict (name) do update set owner = excluded.owner
                   returning version, log_id, lsn, epoch, log_offset, commit_ts"""
            ).format(_OWN),
            [self.name, self._owner],
        ).fetchone()
        assert row is not None  # noqa: S101 -- a row was inserted or updated
        self._version, *head = row
        if head[0] is None:
            return None
        found = db.execute(
            sql.SQL("select progress::text from {}.tables where destination = %s").format(_OWN), [self.name]
        ).fetchall()
        return Progress.restored(tuple(head), [text for (text,) in found])

    def _open(self) -> psycopg.Connection:
        try:
            return PatientSession.opened(self._dsn, self._patience, autocommit=True)
        except (psycopg.Error, ValueError) as error:  # ValueError: letters that no connection string has
            raise connection_refused(self.name, error) from None


def _session_dsn(destination: DestinationName, dsn: str, lock_timeout: timedelta) -> str:
    try:
        given = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    except (psycopg.ProgrammingError, ValueError):
        # Its message repeats the part of the DSN that it does not understand, which may be the password.
        raise ConfigError(
            f"destinations.{destination}.dsn is not a connection string.",
            solution="Write `postgresql://USER:PASSWORD@HOST:5432/DATABASE` or `host=HOST dbname=DATABASE user=USER`.",
        ) from None
    timeout = {"lock_timeout": f"{lock_timeout.total_seconds() * 1000:.0f}"}
    settings = " ".join(f"-c {name}={value}" for name, value in {**_SETTINGS, **timeout}.items())
    options = f"{given.get('options', '')} {settings}".strip()
    defaults = {"application_name": "penstock apply", "connect_timeout": "10", **_NETWORK}
    return make_conninfo("", **{**defaults, **given, "options": options, "client_encoding": "UTF8"})
