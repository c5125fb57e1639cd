"""A publication that penstock makes and keeps in step with a list of table patterns.

It is marked by its comment: one that somebody else made is never changed. Partitions are published in the name of
their root.
"""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg
import structlog
from psycopg import sql
from psycopg.rows import tuple_row

from capture.config import SourceConfig
from capture.errors import PublicationTaken
from schemas.identifiers import OWN_SCHEMA, PipelineName, PublicationName, TableName
from schemas.patterns import matching

_LOCK_TIMEOUT = "2s"
"""A table that somebody has locked is added at a later look; nobody queues behind us."""

log = structlog.get_logger(__name__)


def keep_publication(session: psycopg.Connection[Any], pipeline: PipelineName, source: SourceConfig) -> None:
    """Makes the publication where there is none, and adds and drops tables as the patterns say."""
    publication = source.publication
    with session.cursor(row_factory=tuple_row) as cursor:
        _make(cursor, publication, f"penstock: {pipeline}")
        wanted = set(matching(_publishable(cursor), source.tables))
        present = {
            TableName(*row)
            for row in cursor.execute(
                """
                select n.nspname, c.relname
                  from pg_publication p
                  join pg_publication_rel r on r.prpubid = p.oid
                  join pg_class c on c.oid = r.prrelid
                  join pg_namespace n on n.oid = c.relnamespace
                 where p.pubname = %s
                """,
                [publication],
            )
        }
        changes: tuple[tuple[LiteralString, set[TableName]], ...] = (
            ("add", wanted - present),
            ("drop", present - wanted),
        )
        for verb, tables in changes:
            for table in sorted(tables):
                change = sql.SQL("alter publication {} {} table only {}").format(
                    sql.Identifier(publication), sql.SQL(verb), sql.Identifier(*table)
                )
                _changed(cursor, change, verb, table)


def _make(cursor: psycopg.Cursor[Any], publication: PublicationName, mark: str) -> None:
    found = cursor.execute(
        "select obj_description(oid, 'pg_publication') from pg_publication where pubname = %s", [publication]
    ).fetchone()
    name = sql.Identifier(publication)
    if found is None:
        with cursor.connection.transaction():
            cursor.execute(sql.SQL("create publication {} with (publish_via_partition_root)").format(name))
            cursor.execute(sql.SQL("comment on publication {} is {}").format(name, sql.Literal(mark)))
        log.info("publication made", publication=publication)
    elif found[0] != mark:
        raise PublicationTaken(
            f"Publication {publication} was not made by this pipeline, so that `source.tables` cannot change it.",
            solution="Leave `source.tables` out, or name another `source.publication`.",
        )


def _publishable(cursor: psycopg.Cursor[Any]) -> list[TableName]:
    rows = cursor.execute(
        """
        select n.nspname, c.relname
          from pg_class c join pg_namespace n on n.oid = c.relnamespace
         where c.relkind in ('r', 'p') and c.relpersistence = 'p' and not c.relispartition
           and n.nspname not like 'pg\\_%%' and n.nspname not in ('information_schema', %s)
        """,
        [OWN_SCHEMA],
    )
    return [TableName(*row) for row in rows]


def _changed(cursor: psycopg.Cursor[Any], change: sql.Composed, verb: str, table: TableName) -> None:
    try:
        with cursor.connection.transaction():
            cursor.execute(sql.SQL("set local lock_timeout = {}").format(sql.Literal(_LOCK_TIMEOUT)))
            cursor.execute(change)
    except (psycopg.errors.LockNotAvailable, psycopg.errors.UndefinedTable, psycopg.errors.UndefinedObject):
        log.info("publication not changed yet", table=str(table), change=verb)
    except psycopg.errors.InsufficientPrivilege:
        solution = "Give the table to the role of `source.dsn`, or take it away with a pattern that begins with `!`."
        log.warning("publication not changed, the role does not own the table", table=str(table), solution=solution)
    else:
        log.info("publication changed", table=str(table), change=verb)
