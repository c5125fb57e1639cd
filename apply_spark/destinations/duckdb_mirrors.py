"""Mirrors in a database that DuckDB writes: the source's names, and one transaction for every interval.

What the database is, a file or a lake, is the affair of a `Database`. It is open only while a batch is written;
compare-and-set on the stored version catches an apply that was frozen and woke up. DuckDB has no savepoints: a table
that cannot be written rolls the whole batch back, and the batch comes again without it. The next copy of a table is
built beside its mirror (duckdb_beside.py).
"""

# ruff: noqa: S608 -- DuckDB has no composer of statements: names pass through quoted, values are parameters

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import duckdb
import pyarrow as pa

from apply_spark.destination import ALL_MODES, Batch, TableChanges
from apply_spark.destinations.caseless_names import OWN_SCHEMA, refuse_unheld_names
from apply_spark.destinations.duckdb_alter import alter, set_columns
from apply_spark.destinations.duckdb_beside import beside, copies_beside, put_in_place, refuse_names_of_copies
from apply_spark.destinations.duckdb_refusals import REFUSED, refusals, unheld_value
from apply_spark.destinations.duckdb_types import converted, converted_row, duckdb_type, quoted
from apply_spark.errors import DestinationAway, DestinationLocked, DestinationTaken, PartialRow, TableFailed
from apply_spark.progress import Progress
from apply_spark.rows import Rows
from schemas.envelope import avro_name
from schemas.failpoints import failpoint
from schemas.identifiers import DestinationName, TableName
from schemas.table import TableSchema

_OWN_TABLES = """
create schema if not exists {own};
create table if not exists {own}.destination (
    name varchar, owner varchar, version bigint,
    log_id varchar, lsn ubigint, epoch bigint, log_offset bigint, commit_ts bigint);
create table if not exists {own}.tables (destination varchar, schema_name varchar, table_name varchar, progress json);
"""


class Database(Protocol):
    """Where the mirrors are, and who may write there."""

    def hold(self) -> None:
        """Keeps a second apply out, else DestinationInUse, until `let_go`."""

    def let_go(self) -> None:
        """May be called without `hold`."""

    def connected(self) -> tuple[duckdb.DuckDBPyConnection, str]:
        """A session, and the catalog in it that has the mirrors. Names begin with that: a schema may be called so."""


class DuckDbMirrors:
    """A Destination: all that does not depend on what the database is."""

    modes = ALL_MODES

    def __init__(self, name: DestinationName, database: Database) -> None:
        self.name = name
        self._database = database
        self._owner = secrets.token_hex(8)
        self._version = 0
        self._catalog = ""
        self._copies: frozenset[TableName] = frozenset()
        """Tables whose next copy is built beside their mirror; that copy is what is written to."""

    def startup(self) -> Progress | None:
        self._database.hold()
        try:
            with self._transaction() as db:
                db.execute(_OWN_TABLES.format(own=self._own))
                stored = db.execute(f"select * from {self._own}.destination where name = ?", [self.name]).fetchone()
                if stored is None:
                    db.execute(
                        f"insert into {self._own}.destination values (?, ?, 0, null, null, null, null, null)",
                        [self.name, self._owner],
                    )
                    return None
                db.execute(f"update {self._own}.destination set owner = ? where name = ?", [self._owner, self.name])
                return self._stored(db, stored)
        except BaseException:
            self.shutdown()
            raise

    def shutdown(self) -> None:
        self._database.let_go()

    def drop_table_for_copy(self, schema: TableSchema, progress: Progress) -> None:
        refuse_unheld_names(schema, progress)
        refuse_names_of_copies(schema.name)
        columns = ", ".join(f"{quoted(c.name)} {duckdb_type(c).name}" for c in schema.columns)
        with self._writing(progress) as db, refusals(schema):
            db.execute(f"create schema if not exists {quoted(self._catalog, schema.name.schema)}")
            if self._is_there(db, schema.name):
                self._copies |= {schema.name}
            db.execute(f"drop table if exists {self._target(schema)}")
            db.execute(f"create table {self._target(schema)} ({columns})")

    def write_table_rows(self, schema: TableSchema, rows: Rows, progress: Progress) -> None:
        arrow = rows.arrow()
        with self._writing(progress) as db, refusals(schema), self._batch(db, schema, arrow):
            db.execute(
                f"insert into {self._target(schema)} select {converted_row(schema)} from batch where row is not null"
            )

    def write_events(self, batch: Batch) -> None:
        arrows = [changes.rows.arrow() for changes in batch.tables]
        for alteration in batch.altered:
            refuse_unheld_names(alteration.after, batch.progress)
        with self._writing(batch.progress) as db:
            for alteration in batch.altered:
                failpoint("duckdb.altering", duckdb.IOException)
                with refusals(alteration.after):
                    alter(db, self._target(alteration.after), alteration)
                failpoint("duckdb.altered", duckdb.IOException)
            for changes, arrow in zip(batch.tables, arrows, strict=True):
                with refusals(changes.schema):
                    self._write_table(db, changes, arrow)

    def save_progress(self, progress: Progress) -> None:
        with self._writing(progress):
            pass

    @property
    def _own(self) -> str:
        return quoted(self._catalog, OWN_SCHEMA)

    def _target(self, schema: TableSchema) -> str:
        return quoted(self._catalog, *(beside(schema.name) if schema.name in self._copies else schema.name))

    def _is_there(self, db: duckdb.DuckDBPyConnection, table: TableName) -> bool:
        found = db.execute(
            "select 1 from duckdb_tables() where (database_name, schema_name, table_name) = (?, ?, ?)",
            [self._catalog, *table],
        )
        return found.fetchone() is not None

    def _write_table(self, db: duckdb.DuckDBPyConnection, changes: TableChanges, arrow: pa.Table) -> None:
        if changes.truncate:
            db.execute(f"delete from {self._target(changes.schema)}")
        if changes.ending is not None:
            current = changes.ending.current
            where = f"{quoted(current.name)} = '{current.missing}'"
            set_columns(db, self._target(changes.schema), changes.ending.values, where)
        if arrow.num_rows == 0:
            return
        if not changes.schema.key:
            self._write_bag(db, changes.schema, arrow)
        elif changes.partial:
            self._write_partial(db, changes.schema, arrow)
        else:
            self._write_whole(db, changes.schema, arrow)

    def _write_whole(self, db: duckdb.DuckDBPyConnection, schema: TableSchema, arrow: pa.Table) -> None:
        target = self._target(schema)
        keys = ", ".join(f"{converted(column, 'key')} as k{index}" for index, column in enumerate(schema.key))
        with self._batch(db, schema, arrow):
            db.execute(_deleted(schema, target, f"select {keys} from batch"))
            failpoint("duckdb.deleted", duckdb.IOException)
            db.execute(f"insert into {target} select {converted_row(schema)} from batch where not deleted")

    def _write_partial(self, db: duckdb.DuckDBPyConnection, schema: TableSchema, arrow: pa.Table) -> None:
        target = self._target(schema)
        both = [
            f"{converted(column, struct)} as {prefix}{index}"
            for struct, prefix in (("key", "k"), ("base", "b"))
            for index, column in enumerate(schema.key)
        ]
        self._stage(db, schema, arrow, ["deleted", "missing", *both])
        self._fill_missing(db, schema)
        keys = ", ".join(f"k{index}" for index in range(len(schema.key)))
        db.execute(_deleted(schema, target, f"select {keys} from staged"))
        failpoint("duckdb.deleted", duckdb.IOException)
        db.execute(f"insert into {target} select {_staged_columns(schema)} from staged where not deleted")

    def _fill_missing(self, db: duckdb.DuckDBPyConnection, schema: TableSchema) -> None:
        """Columns that were not sent come from the row that the mirror has under the base key, before any delete."""
        at_base = " and ".join(f"t.{quoted(c.name)} = s.b{index}" for index, c in enumerate(schema.key))
        lost = db.execute(
            f"""select count(*) from staged s
                 where len(missing) > 0 and not exists (select 1 from {self._target(schema)} t where {at_base})"""
        ).fetchone()
        if lost and lost[0]:
            raise TableFailed(
                schema.name,
                PartialRow(f"{lost[0]} rows lack columns that were not sent, and have no row to take them from."),
            )
        missing = {name for (name,) in db.execute("select distinct unnest(missing) from staged").fetchall()}
        for index, column in enumerate(schema.columns):
            if avro_name(column.name) in missing:
                db.execute(
                    f"""update staged s set c{index} = t.{quoted(column.name)} from {self._target(schema)} t
                         where {at_base} and list_contains(s.missing, ?)""",
                    [avro_name(column.name)],
                )

    def _write_bag(self, db: duckdb.DuckDBPyConnection, schema: TableSchema, arrow: pa.Table) -> None:
        """Rows without a key: so many copies come, so many go, whichever they are."""
        self._stage(db, schema, arrow, ["net", "row_number() over () as id"])
        wanted = db.execute("select coalesce(sum(-net), 0) from temp.staged where net < 0").fetchone()
        if wanted is not None and wanted[0]:
            self._take_away(db, schema, wanted[0])
        db.execute(
            f"""insert into {self._target(schema)}
                select {_staged_columns(schema)} from staged, range(net) where net > 0"""
        )

    def _take_away(self, db: duckdb.DuckDBPyConnection, schema: TableSchema, wanted: int) -> None:
        same_row = " and ".join(
            f"t.{quoted(c.name)} is not distinct from s.c{index}" for index, c in enumerate(schema.columns)
        )
        gone = db.execute(
            f"""delete from {self._target(schema)} where rowid in (
                  select rid from (
                    select t.rowid as rid, s.net, row_number() over (partition by s.id) as copy
                      from {self._target(schema)} t join staged s on s.net < 0 and {same_row})
                   where copy <= -net)"""
        ).fetchone()
        if gone != (wanted,):
            reason = f"{wanted} rows were to go, {gone[0] if gone else 0} were found."
            raise TableFailed(schema.name, PartialRow(reason))

    def _stage(self, db: duckdb.DuckDBPyConnection, schema: TableSchema, arrow: pa.Table, further: list[str]) -> None:
        """The batch as a temporary table `staged`, converted."""
        columns = ", ".join([*further, converted_row(schema)])
        with self._batch(db, schema, arrow):
            db.execute(f"create or replace temp table staged as select {columns} from batch")

    @contextmanager
    def _batch(self, db: duckdb.DuckDBPyConnection, schema: TableSchema, arrow: pa.Table) -> Iterator[None]:
        """The rows under the name `batch`. Where a value does not fit its column, the column is named."""
        db.register("batch", arrow)
        try:
            yield
        except REFUSED as error:
            db.execute("rollback")  # which also takes `batch` away
            unheld = unheld_value(db, schema, arrow, error)
            if unheld is None:
                raise
            raise TableFailed(schema.name, unheld) from None
        finally:
            db.unregister("batch")

    @contextmanager
    def _writing(self, progress: Progress) -> Iterator[duckdb.DuckDBPyConnection]:
        """A transaction that begins with compare-and-set and ends with the progress."""
        head, tables = progress.stored()
        failpoint("duckdb.beginning", DestinationAway)
        with self._transaction() as db:
            db.execute(
                f"""update {self._own}.destination
                      set version = version + 1, log_id = ?, lsn = ?, epoch = ?, log_offset = ?, commit_ts = ?
                    where name = ? and owner = ? and version = ?""",
                [*head, self.name, self._owner, self._version],
            )
            changed = db.fetchone()
            if changed is None or changed[0] != 1:
                raise DestinationTaken(f"Another apply has written to destination {self.name}.")
            mine = f"{self._own}.tables where destination = ?"
            before = db.execute(f"select schema_name, table_name from {mine}", [self.name]).fetchall()
            db.execute(f"delete from {mine}", [self.name])
            db.execute(
                f"insert into {self._own}.tables select ?, unnest(?), unnest(?), unnest(?)", [self.name, *tables]
            )
            known = {*progress.tables, *(TableName(*table) for table in before)}
            self._copies = copies_beside(db, self._catalog) & known
            failpoint("duckdb.progress_written", duckdb.IOException)
            yield db
            put_in_place(db, self._catalog, self._copies, progress)
            failpoint("duckdb.committing", duckdb.IOException)
        failpoint("duckdb.committed", DestinationAway)
        self._version += 1

    @contextmanager
    def _transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        db, self._catalog = self._database.connected()
        try:
            db.execute("set timezone = 'UTC'")
            db.execute("begin")
            yield db
            self._commit(db)
        except duckdb.OperationalError as error:
            raise DestinationAway(
                f"DuckDB cannot write destination {self.name} ({type(error).__name__}).",
                solution="Check its disk (room, rights) and the memory of the host; then start apply again.",
            ) from None
        finally:
            db.close()

    def _commit(self, db: duckdb.DuckDBPyConnection) -> None:
        try:
            db.execute("commit")
        except duckdb.TransactionException:
            raise DestinationLocked(
                f"Destination {self.name} took no commit: another program changed the same tables at that moment.",
                solution="Start apply again: it goes on where the destination stands.",
            ) from None

    def _stored(self, db: duckdb.DuckDBPyConnection, row: tuple[Any, ...]) -> Progress | None:
        _, _, self._version, *head = row
        if head[0] is None:
            return None
        found = db.execute(f"select progress from {self._own}.tables where destination = ?", [self.name]).fetchall()
        return Progress.restored(tuple(head), [text for (text,) in found])


def _deleted(schema: TableSchema, target: str, keys: str) -> str:
    """Rows of these keys, k0 and so on, go. Every column of what stands after USING is put into the hash table of the
    join, so that is the keys alone."""
    same_key = " and ".join(f"t.{quoted(column.name)} = s.k{index}" for index, column in enumerate(schema.key))
    return f"delete from {target} t using ({keys}) s where {same_key}"


def _staged_columns(schema: TableSchema) -> str:
    return ", ".join(f"c{index}" for index in range(len(schema.columns)))
