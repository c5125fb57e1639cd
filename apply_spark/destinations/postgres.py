"""Another Postgres: each table a mirror under its own name, progress in the schema `penstock` of the same database.

Rows come through a staging table, by COPY: those that Spark computes from its executors, each in a session of its own,
those that are here already from this process. One transaction then merges the tables of an interval and stores the
progress. One session lives as long as apply and holds an advisory lock, so that there is one writer.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import BaseModel, Field, SecretStr

from apply_spark.destination import ALL_MODES, Batch
from apply_spark.destinations.postgres_merge import Staged, append, merge, settle
from apply_spark.destinations.postgres_mirror import OWN_SCHEMA, alter_mirror, held_types, make_mirror
from apply_spark.destinations.postgres_refusals import refusals, unheld_values
from apply_spark.destinations.postgres_staging import ATTEMPT, Staging, copy_in, copy_in_from_executors
from apply_spark.errors import DestinationAway, DestinationInUse, DestinationTaken, NotHeld, TableFailed
from apply_spark.progress import Progress
from apply_spark.rows import Rows, SparkRows
from schemas.errors import DestinationError
from schemas.failpoints import failpoint
from schemas.identifiers import DestinationName
from schemas.settings import checked, without_passwords
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
_OWN = sql.Identifier(OWN_SCHEMA)
_OWN_TABLES = sql.SQL("""
create schema if not exists {own};
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
        self._dsn = _session_dsn(read.dsn.get_secret_value(), read.lock_timeout)
        self._patience = read.patience.total_seconds()
        self._owner = secrets.token_hex(8)
        self._version = 0
        self._session: psycopg.Connection | None = None

    def startup(self) -> Progress | None:
        if self._session is not None:
            raise DestinationInUse(f"This apply has opened destination {self.name} already.")
        self._session = db = self._open()
        try:
            with _told():
                self._lock(db)
                with db.transaction():
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
        with self._writing(progress) as db, refusals(schema):
            make_mirror(db, schema)

    def write_table_rows(self, schema: TableSchema, rows: Rows, progress: Progress) -> None:
        with self._staged([(schema, rows)]) as (staged,), self._writing(progress) as db, refusals(schema):
            settle(db, staged)
            with unheld_values(db, staged):
                append(db, staged)

    def write_events(self, batch: Batch) -> None:
        with (
            self._staged([(changes.schema, changes.rows) for changes in batch.tables]) as all_staged,
            self._writing(batch.progress) as db,
        ):
            for alteration in batch.altered:
                failpoint("postgres.altering", psycopg.OperationalError)
                with refusals(alteration.after):
                    alter_mirror(db, alteration)
                failpoint("postgres.altered", psycopg.OperationalError)
            for changes, staged in zip(batch.tables, all_staged, strict=True):
                with refusals(changes.schema):
                    settle(db, staged)
                    with unheld_values(db, staged):
                        merge(db, changes, staged)
                failpoint("postgres.merged", psycopg.OperationalError)

    def save_progress(self, progress: Progress) -> None:
        with self._writing(progress):
            pass

    @contextmanager
    def _staged(self, tables: Sequence[tuple[TableSchema, Rows]]) -> Iterator[list[Staged]]:
        """The rows of each table in a staging table, written before the transaction that merges them."""
        with _told():
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
        with refusals(schema):
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
        """A transaction that begins with compare-and-set and the progress."""
        db = self._connected
        with _told():
            failpoint("postgres.beginning", psycopg.OperationalError)
            with db.transaction():
                self._claim(db, progress)
                failpoint("postgres.progress_written", psycopg.OperationalError)
                yield db
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
        db.execute(sql.SQL("delete from {}.tables where destination = %s").format(_OWN), [self.name])
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
        except psycopg.Error as error:
            reason = without_passwords((str(error).strip().splitlines() or ["no reason given"])[0])
            raise DestinationAway(f"Postgres took no connection of destination {self.name}: {reason}") from error


@contextmanager
def _told() -> Iterator[None]:
    """What is not about one table. The text of an error may hold a value; its kind does not."""
    try:
        yield
    except psycopg.OperationalError as error:
        raise DestinationAway(f"The connection to the destination was lost ({type(error).__name__}).") from error
    except psycopg.Error as error:
        raise DestinationError(
            f"Postgres refuses to keep the progress of the destination ({type(error).__name__}).",
            solution="Give apply's role CREATE on the database, and leave the schema penstock there as it is.",
        ) from None


def _session_dsn(dsn: str, lock_timeout: timedelta) -> str:
    given = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    timeout = {"lock_timeout": f"{lock_timeout.total_seconds() * 1000:.0f}"}
    settings = " ".join(f"-c {name}={value}" for name, value in {**_SETTINGS, **timeout}.items())
    options = f"{given.get('options', '')} {settings}".strip()
    defaults = {"application_name": "penstock apply", "connect_timeout": "10", **_NETWORK}
    return make_conninfo("", **{**defaults, **given, "options": options, "client_encoding": "UTF8"})
