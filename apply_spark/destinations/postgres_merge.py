"""From a staging table to its mirror, in SQL: append, or delete and upsert by key, or a bag of rows without one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import psycopg
from psycopg import sql

from apply_spark.destination import Ending, TableChanges
from apply_spark.destinations.postgres_staging import staged_columns
from apply_spark.destinations.postgres_types import converted, same
from apply_spark.errors import PartialRow, TableFailed
from schemas.envelope import avro_name
from schemas.table import Column, TableSchema


@dataclass(frozen=True)
class Staged:
    """A staging table that is filled."""

    schema: TableSchema
    table: sql.Identifier
    types: tuple[str, ...]
    """Of the columns of the mirror."""
    attempts: tuple[tuple[int, int], ...] | None = None
    """Where tasks of Spark wrote: those whose rows count."""

    def values(self, struct: str) -> list[tuple[Column, sql.Composable]]:
        """The columns of a struct, and SQL for their values in the mirror's types."""
        types = {column.name: kind for column, kind in zip(self.schema.columns, self.types, strict=True)}
        return [(c, converted(c, name, types[c.name])) for name, c in staged_columns(self.schema, struct)]


_WRITERS = """
select pg_terminate_backend(pid) from pg_locks join pg_stat_activity using (pid)
 where relation = %s::regclass and mode = 'RowExclusiveLock' and usename = session_user and pid <> pg_backend_pid()
"""


def settle(db: psycopg.Connection, staged: Staged) -> None:
    """Takes away what a task wrote that Spark does not count, and lets nobody write any more.

    The tasks that count have committed. Who still writes is of an executor that Spark has given up: it may be frozen,
    or its host gone without a word, and would be waited for."""
    if staged.attempts is None:
        return
    db.execute(_WRITERS, [staged.table.as_string(db)])
    db.execute(sql.SQL("lock table {} in share row exclusive mode").format(staged.table))
    db.execute(
        sql.SQL(
            "delete from {} where (part, attempt) not in (select * from unnest(%s::bigint[], %s::bigint[]))"
        ).format(staged.table),
        [[part for part, _ in staged.attempts], [attempt for _, attempt in staged.attempts]],
    )


def append(db: psycopg.Connection, staged: Staged, mirror: sql.Identifier) -> None:
    db.execute(
        sql.SQL("insert into {} ({}) select {} from {}").format(
            mirror,
            _names(staged.schema.columns),
            _list(value for _, value in staged.values("row")),
            staged.table,
        )
    )


def merge(db: psycopg.Connection, changes: TableChanges, staged: Staged, mirror: sql.Identifier) -> None:
    if changes.truncate:
        db.execute(sql.SQL("delete from {}").format(mirror))
    if changes.ending is not None:
        _end(db, mirror, changes.ending)
    if not staged.schema.key:
        _merge_bag(db, staged, mirror)
        return
    _convert(db, staged, ("key", "base", "row") if changes.partial else ("key", "row"))
    if changes.partial:
        _fill_missing(db, staged.schema, mirror)
    _merge_keyed(db, staged.schema, mirror)


def _end(db: psycopg.Connection, mirror: sql.Identifier, ending: Ending) -> None:
    """Texts that stand without a type take that of their column."""
    current = ending.current
    db.execute(
        sql.SQL("update {} set {} where {} = {}").format(
            mirror,
            _list(
                sql.SQL("{} = {}").format(sql.Identifier(column.name), sql.Literal(column.missing))
                for column in ending.values
            ),
            sql.Identifier(current.name),
            sql.Literal(current.missing),
        )
    )


def unheld_column(db: psycopg.Connection, staged: Staged) -> Column | None:
    """Which column has a staged value that the mirror cannot hold."""
    for column, value in staged.values("row"):
        try:
            with db.transaction():
                db.execute(sql.SQL("select count({}) from {}").format(value, staged.table))
        except psycopg.DataError:
            return column
    return None


def _convert(db: psycopg.Connection, staged: Staged, structs: tuple[str, ...]) -> None:
    """A temporary table `merging` with the values in the mirror's types."""
    names = [name for struct in structs for name, _ in staged_columns(staged.schema, struct)]
    values = [value for struct in structs for _, value in staged.values(struct)]
    further = [sql.SQL("deleted"), sql.SQL("missing::text[] as missing")][: 2 if "base" in structs else 1]
    db.execute(sql.SQL("drop table if exists pg_temp.merging"))
    db.execute(
        sql.SQL("create temporary table merging on commit drop as select {} from {}").format(
            _list(
                (
                    *further,
                    *(sql.SQL("{} as {}").format(v, sql.Identifier(n)) for n, v in zip(names, values, strict=True)),
                )
            ),
            staged.table,
        )
    )
    db.execute(sql.SQL("analyze pg_temp.merging"))


def _merge_keyed(db: psycopg.Connection, schema: TableSchema, mirror: sql.Identifier) -> None:
    """Each key stands once in `merging`, so the order among its rows does not matter. Key columns are set, too: equal
    keys may be written differently (1.0 and 1.00)."""
    db.execute(
        sql.SQL("delete from {} as mirror using pg_temp.merging as m where m.deleted and {}").format(
            mirror, _at(schema, "key")
        )
    )
    db.execute(
        sql.SQL(
            "insert into {} ({}) select {} from pg_temp.merging where not deleted on conflict ({}) do update set {}"
        ).format(
            mirror,
            _names(schema.columns),
            _list(sql.Identifier(name) for name, _ in staged_columns(schema, "row")),
            _names(schema.key),
            _list(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(column.name)) for column in schema.columns),
        )
    )


def _fill_missing(db: psycopg.Connection, schema: TableSchema, mirror: sql.Identifier) -> None:
    """Columns that were not sent come from the row that the mirror has under the base key, before any change."""
    at_base = _at(schema, "base")
    (lost,) = db.execute(
        sql.SQL(
            """select count(*) from pg_temp.merging as m
                where cardinality(m.missing) > 0 and not exists (select from {} as mirror where {})"""
        ).format(mirror, at_base)
    ).fetchone() or (0,)
    if lost:
        raise TableFailed(
            schema.name, PartialRow(f"{lost} rows lack columns that were not sent, and have no row to take them from.")
        )
    found = db.execute("select distinct unnest(missing) from pg_temp.merging").fetchall()
    missing = {name for (name,) in found}
    for name, column in staged_columns(schema, "row"):
        if avro_name(column.name) in missing:
            db.execute(
                sql.SQL(
                    "update pg_temp.merging as m set {} = mirror.{} from {} as mirror where {} and {} = any(m.missing)"
                ).format(
                    sql.Identifier(name),
                    sql.Identifier(column.name),
                    mirror,
                    at_base,
                    sql.Literal(avro_name(column.name)),
                )
            )


def _merge_bag(db: psycopg.Connection, staged: Staged, mirror: sql.Identifier) -> None:
    """Rows without a key: so many copies come, so many go, whichever they are."""
    (wanted,) = db.execute(
        sql.SQL("select coalesce(sum(-net), 0) from {} where net < 0").format(staged.table)
    ).fetchone() or (0,)
    if wanted:
        _take_away(db, staged, mirror, wanted)
    db.execute(
        sql.SQL("insert into {} ({}) select {} from {} cross join generate_series(1, net) where net > 0").format(
            mirror,
            _names(staged.schema.columns),
            _list(value for _, value in staged.values("row")),
            staged.table,
        )
    )


def _take_away(db: psycopg.Connection, staged: Staged, mirror: sql.Identifier, wanted: int) -> None:
    """Records are equal where all values are, NULLs included, and can be hashed."""
    schema = staged.schema
    held = same((column, sql.SQL("mirror.{}").format(sql.Identifier(column.name))) for column in schema.columns)
    gone = db.execute(
        sql.SQL(
            """with going as (select {going} as row, -net as net, row_number() over () as id
                                  from {staged} where net < 0),
                    found as (select mirror.ctid, {held} as row from {mirror} as mirror),
                    chosen as (select found.ctid, going.net, row_number() over (partition by going.id) as copy
                                 from found join going using (row))
               delete from {mirror} as mirror using chosen
                where mirror.ctid = chosen.ctid and chosen.copy <= chosen.net"""
        ).format(going=same(staged.values("row")), staged=staged.table, held=held, mirror=mirror)
    ).rowcount
    if gone != wanted:
        raise TableFailed(schema.name, PartialRow(f"{wanted} rows were to go, {gone} were found."))


def _at(schema: TableSchema, struct: str) -> sql.Composable:
    """That the mirror's row is the one under this key."""
    return sql.SQL(" and ").join(
        sql.SQL("mirror.{} = m.{}").format(sql.Identifier(column.name), sql.Identifier(name))
        for name, column in staged_columns(schema, struct)
    )


def _names(columns: Iterable[Column]) -> sql.Composable:
    return _list(sql.Identifier(column.name) for column in columns)


def _list(parts: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)
