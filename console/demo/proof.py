"""Source and destination compared by content, row by row, in no order.

Both sides render each column as the same text; each row becomes a digest, each table a multiset of digests, so a table
without a key is compared as exactly as any other. What is told are counts, never values.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import duckdb
import psycopg
from psycopg import sql

from console.demo.lake import open_lake
from schemas.identifiers import TableName

_BATCH = 2000
_OPEN_SECONDS = 60.0
_BY_TEXT: tuple[LiteralString, LiteralString] = ("{}::text", "cast({} as varchar)")
# Where the two print the same value in two ways: Postgres's rendering, DuckDB's rendering.
_RENDERED: dict[str, tuple[LiteralString, LiteralString]] = {
    "timestamptz": ("(extract(epoch from {}) * 1000000)::bigint::text", "cast(epoch_us({}) as varchar)"),
    "timestamp": ("(extract(epoch from {}) * 1000000)::bigint::text", "cast(epoch_us({}) as varchar)"),
    "bytea": ("encode({}, 'hex')", "lower(hex({}))"),
}
_ARRAY: tuple[LiteralString, LiteralString] = ("to_json({})::text", "cast(to_json({}) as varchar)")


@dataclass(frozen=True)
class TableProof:
    """How one table compares."""

    table: TableName
    source_rows: int
    destination_rows: int | None
    """None: the table is not there."""
    only_at_source: int
    only_at_destination: int

    @property
    def equal(self) -> bool:
        return self.destination_rows is not None and self.only_at_source == self.only_at_destination == 0


def prove(source: psycopg.Connection[dict[str, Any]], lake_path: Path, tables: Iterable[TableName]) -> list[TableProof]:
    """Compare every table. Nobody may write to the source meanwhile."""
    with open_lake(lake_path, _OPEN_SECONDS) as lake:
        return [_compare(source, lake, table) for table in tables]


def _compare(
    source: psycopg.Connection[dict[str, Any]], lake: duckdb.DuckDBPyConnection, table: TableName
) -> TableProof:
    columns = _columns(source, table)
    ours = _digests(_source_rows(source, table, columns))
    try:
        theirs = _digests(_lake_rows(lake, table, columns))
    except (duckdb.CatalogException, duckdb.BinderException):
        return TableProof(table, ours.total(), None, ours.total(), 0)
    return TableProof(table, ours.total(), theirs.total(), (ours - theirs).total(), (theirs - ours).total())


def _columns(source: psycopg.Connection[dict[str, Any]], table: TableName) -> list[tuple[str, str]]:
    rows = source.execute(
        "select a.attname as name, t.typname as type from pg_attribute a join pg_type t on t.oid = a.atttypid "
        "where a.attrelid = %s::regclass and a.attnum > 0 and not a.attisdropped order by a.attnum",
        (sql.Identifier(*table).as_string(source),),
    ).fetchall()
    return [(row["name"], row["type"]) for row in rows]


def _source_rows(
    source: psycopg.Connection[dict[str, Any]], table: TableName, columns: list[tuple[str, str]]
) -> Iterator[tuple[str | None, ...]]:
    rendered = [sql.SQL(_rendering(kind)[0]).format(sql.Identifier(name)) for name, kind in columns]
    query = sql.SQL("select {} from {}").format(sql.SQL(", ").join(rendered), sql.Identifier(*table))
    with source.transaction(), source.cursor("proof", row_factory=psycopg.rows.tuple_row) as cursor:
        cursor.itersize = _BATCH
        yield from cursor.execute(query)


def _lake_rows(
    lake: duckdb.DuckDBPyConnection, table: TableName, columns: list[tuple[str, str]]
) -> Iterator[tuple[str | None, ...]]:
    rendered = [sql.SQL(_rendering(kind)[1]).format(sql.Identifier(name)) for name, kind in columns]
    query = sql.SQL("select {} from {}").format(sql.SQL(", ").join(rendered), sql.Identifier(*table))
    lake.execute(query.as_string())
    while rows := lake.fetchmany(_BATCH):
        yield from rows


def _rendering(kind: str) -> tuple[LiteralString, LiteralString]:
    return _ARRAY if kind.startswith("_") else _RENDERED.get(kind, _BY_TEXT)


def _digests(rows: Iterable[tuple[str | None, ...]]) -> Counter[bytes]:
    return Counter(_digest(row) for row in rows)


def _digest(row: tuple[str | None, ...]) -> bytes:
    """Fields are framed by their length, so that no two rows look alike; null is not the empty text."""
    digest = hashlib.blake2b(digest_size=16)
    for field in row:
        if field is None:
            digest.update(b"-")
        else:
            data = field.encode()
            digest.update(b"%d:" % len(data))
            digest.update(data)
    return digest.digest()
