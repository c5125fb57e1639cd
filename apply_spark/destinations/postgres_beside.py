"""Copies that are built beside the mirror that they are to replace: readers see the old rows until the new are ready.

Such a copy stands in the schema of its mirror, so that it gets the privileges that tables get there by default. It
takes the mirror's place in the transaction that makes its table Ready. A mirror that is as penstock made it goes, and
the copy gets its name: no row is touched. One to which somebody added something, such as a view, an index or a grant,
stays, and its rows are exchanged for those of the copy.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection

import psycopg
from psycopg import sql

from apply_spark.destinations.postgres_mirror import shape_of
from apply_spark.destinations.postgres_refusals import refusals
from apply_spark.errors import NotHeld, TableFailed
from apply_spark.progress import Progress
from schemas.identifiers import TableName
from schemas.phases import Ready

_READABLE = 30
"""Bytes of a table's own name in that of its copy: Postgres cuts names after 63."""
_COPY = re.compile(r" \(penstock copy [0-9a-f]{8}\)$")
_ADDED_TO = """
select exists (select from pg_depend
                 left join pg_constraint on classid = 'pg_constraint'::regclass and pg_constraint.oid = objid
                where refclassid = 'pg_class'::regclass and refobjid = to_regclass(%(mirror)s)
                  and deptype <> 'i' and coalesce(contype, ' ') not in ('p', 'n'))
    or exists (select from pg_attribute where attrelid = to_regclass(%(mirror)s) and attacl is not null)
    or exists (select from pg_description
                where classoid = 'pg_class'::regclass and objoid = to_regclass(%(mirror)s))
    or exists (select from pg_class mirror, pg_class copy
                where mirror.oid = to_regclass(%(mirror)s) and copy.oid = to_regclass(%(copy)s)
                  and (mirror.relacl::text, mirror.relowner, mirror.reloptions::text, mirror.relreplident)
                      is distinct from (copy.relacl::text, copy.relowner, copy.reloptions::text, copy.relreplident))
"""
"""What depends on the mirror, but for its primary key and what is NOT NULL for that; rights, comments, settings."""


def beside(table: TableName) -> TableName:
    digest = hashlib.sha256(table.name.encode()).hexdigest()[:8]
    readable = table.name.encode()[:_READABLE].decode(errors="ignore")
    return TableName(table.schema, f"{readable} (penstock copy {digest})")


def refuse_names_of_copies(table: TableName) -> None:
    if _COPY.search(table.name):
        raise TableFailed(
            table, NotHeld("Names that end with '(penstock copy ...)' are those of penstock's unfinished copies.")
        )


def copies_beside(db: psycopg.Connection, tables: Collection[TableName]) -> frozenset[TableName]:
    """Those of the tables whose next copy is being built."""
    names = {beside(table): table for table in tables}
    found = db.execute(
        """select nspname, relname from unnest(%s::text[], %s::text[]) as copy (schema, name)
             join pg_namespace on nspname = copy.schema
             join pg_class on relnamespace = pg_namespace.oid and relname = copy.name""",
        [[name.schema for name in names], [name.name for name in names]],
    ).fetchall()
    return frozenset(names[TableName(*name)] for name in found)


def put_in_place(db: psycopg.Connection, copies: Collection[TableName], progress: Progress) -> None:
    """Copies whose tables are ready become their mirrors; those of tables that are gone go."""
    for table in copies:
        known = progress.tables.get(table)
        with refusals(table):
            if known is None:
                db.execute(sql.SQL("drop table {}").format(sql.Identifier(*beside(table))))
            elif isinstance(known.phase, Ready):
                _exchange(db, table)


def _exchange(db: psycopg.Connection, table: TableName) -> None:
    columns = shape_of(db, table)
    if columns == shape_of(db, beside(table)) and _is_added_to(db, table):
        _exchange_rows(db, table, [name for name, *_ in columns])
    else:
        _exchange_tables(db, table)


def _exchange_rows(db: psycopg.Connection, table: TableName, columns: list[str]) -> None:
    """Not by TRUNCATE: a reader whose snapshot is older would see nothing."""
    mirror, copy = sql.Identifier(*table), sql.Identifier(*beside(table))
    names = sql.SQL(", ").join(sql.Identifier(name) for name in columns)
    db.execute(sql.SQL("delete from {}").format(mirror))
    db.execute(sql.SQL("insert into {} ({names}) select {names} from {}").format(mirror, copy, names=names))
    db.execute(sql.SQL("drop table {}").format(copy))


def _exchange_tables(db: psycopg.Connection, table: TableName) -> None:
    """The primary key has a name as well, which stays."""
    mirror, copy = sql.Identifier(*table), sql.Identifier(*beside(table))
    old, new = (_primary_key(db, name) for name in (table, beside(table)))
    db.execute(sql.SQL("drop table if exists {}").format(mirror))
    db.execute(sql.SQL("alter table {} rename to {}").format(copy, sql.Identifier(table.name)))
    if old is not None and new is not None:
        rename = sql.SQL("alter table {} rename constraint {} to {}")
        db.execute(rename.format(mirror, sql.Identifier(new), sql.Identifier(old)))


def _is_added_to(db: psycopg.Connection, table: TableName) -> bool:
    names = {"mirror": _text(db, table), "copy": _text(db, beside(table))}
    return db.execute(_ADDED_TO, names).fetchone() == (True,)


def _primary_key(db: psycopg.Connection, table: TableName) -> str | None:
    found = db.execute(
        "select conname from pg_constraint where conrelid = to_regclass(%s) and contype = 'p'", [_text(db, table)]
    ).fetchone()
    return None if found is None else str(found[0])


def _text(db: psycopg.Connection, table: TableName) -> str:
    return sql.Identifier(*table).as_string(db)
