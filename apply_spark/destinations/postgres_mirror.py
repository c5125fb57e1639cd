"""A mirror: the table at the destination, and the types that its columns have there."""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg
from psycopg import sql

from apply_spark.destination import Alteration
from apply_spark.destinations.postgres_types import held_type
from apply_spark.errors import NotHeld, TableFailed
from schemas.evolution import ColumnDropped, ColumnRenamed
from schemas.identifiers import TableName
from schemas.table import Column, TableSchema

OWN_SCHEMA = "penstock"
_UNKNOWN_TYPE = "???"


def held_types(db: psycopg.Connection, schema: TableSchema) -> list[str]:
    """The type of each column, as this server writes it."""
    held = [held_type(column) for column in schema.columns]
    found = db.execute(
        """select format_type(oid, modifier)
             from unnest(%s::oid[], %s::integer[]) with ordinality as held (oid, modifier, place) order by place""",
        [[each.oid for each in held], [each.modifier for each in held]],
    ).fetchall()
    types = [name for (name,) in found]
    for column, name in zip(schema.columns, types, strict=True):
        if name == _UNKNOWN_TYPE:
            raise TableFailed(
                schema.name,
                NotHeld(
                    f"Column {column.name} is of type {column.type_name}, which this Postgres does not have.",
                    solution="Use a newer Postgres, or leave the column out of the publication.",
                ),
            )
    return types


def make_schema(db: psycopg.Connection, name: str) -> None:
    """Only where it is not there: `if not exists` takes the right to make one also where it is."""
    if db.execute("select from pg_namespace where nspname = %s", [name]).fetchone() is None:
        db.execute(sql.SQL("create schema {}").format(sql.Identifier(name)))


def make_mirror(db: psycopg.Connection, schema: TableSchema, name: TableName) -> None:
    """Leaves a table of this name there, empty."""
    mirror, types = sql.Identifier(*name), held_types(db, schema)
    parts = [
        sql.SQL("{} {}").format(sql.Identifier(column.name), sql.SQL(kind))
        for column, kind in zip(schema.columns, types, strict=True)
    ]
    if schema.key:
        parts.append(sql.SQL("primary key ({})").format(sql.SQL(", ").join(sql.Identifier(c.name) for c in schema.key)))
    db.execute(sql.SQL("drop table if exists {}").format(mirror))
    db.execute(sql.SQL("create table {} ({})").format(mirror, sql.SQL(", ").join(parts)))


def alter_mirror(db: psycopg.Connection, alteration: Alteration, mirror: sql.Identifier) -> None:
    """Columns pass through names that no table has, for they may exchange theirs."""
    before, after = (_types_by_number(db, shape) for shape in (alteration.before, alteration.after))
    for change in alteration.changes:
        if isinstance(change, ColumnDropped):
            _alter(db, mirror, "drop column {}", sql.Identifier(change.column.name))
    renamed = [change for change in alteration.changes if isinstance(change, ColumnRenamed)]
    for rename in renamed:
        _alter(db, mirror, "rename column {} to {}", sql.Identifier(rename.before.name), _passing(rename.after))
    for rename in renamed:
        _alter(db, mirror, "rename column {} to {}", _passing(rename.after), sql.Identifier(rename.after.name))
    for column in alteration.after.columns:
        name, kind = sql.Identifier(column.name), sql.SQL(after[column.number])
        if column.number not in before:
            _alter(db, mirror, "add column {} {} default {}", name, kind, sql.Literal(column.missing))
            _alter(db, mirror, "alter column {} drop default", name)
        elif before[column.number] != after[column.number]:
            _alter(db, mirror, "alter column {} type {}", name, kind)


def _types_by_number(db: psycopg.Connection, schema: TableSchema) -> dict[int, str]:
    return {column.number: kind for column, kind in zip(schema.columns, held_types(db, schema), strict=True)}


def _passing(column: Column) -> sql.Identifier:
    return sql.Identifier(f"penstock renames {column.number}")


def _alter(db: psycopg.Connection, mirror: sql.Identifier, action: LiteralString, *parts: sql.Composable) -> None:
    db.execute(sql.SQL("alter table {} ").format(mirror) + sql.SQL(action).format(*parts))


def shape_of(db: psycopg.Connection, table: TableName) -> list[tuple[Any, ...]]:
    """Name, type, and whether it is of the primary key, of each column that is there."""
    return db.execute(
        """select a.attname, format_type(a.atttypid, a.atttypmod), coalesce(a.attnum = any(i.indkey), false)
             from pg_attribute a
             join pg_class c on c.oid = a.attrelid and c.relkind = 'r'
             join pg_namespace n on n.oid = c.relnamespace
             left join pg_index i on i.indrelid = c.oid and i.indisprimary
            where n.nspname = %s and c.relname = %s and a.attnum > 0 and not a.attisdropped
            order by a.attnum""",
        table,
    ).fetchall()
