"""A table as it was copied and as it is published now: whether its copy and the stream still make the whole table.

Where rows came or went without an event (another row filter, a time outside the publication, a partition that was
attached with rows), only the next generation is true.
"""

from __future__ import annotations

import json

import psycopg
from psycopg import sql

from capture.publication import PublishedTable
from schemas.identifiers import LogId
from stores.state import TableCopy


def why_copy(table: PublishedTable, copy: TableCopy | None, log_id: LogId) -> str | None:
    """Why the table needs another copy than the one it has; None if that one may stand. Partitions aside."""
    if copy is None:
        return "it has none"
    if copy.log_id != log_id:
        return "the topics are new"
    if copy.fingerprint != table.fingerprint:
        return f"it is published otherwise: {', '.join(_differences(copy.fingerprint, table.fingerprint))}"
    return None


def _differences(before: str, now: str) -> list[str]:
    try:
        old, new = json.loads(before), json.loads(now)
        return [part for part in new if part not in old or old[part] != new[part]] or ["fewer parts"]
    except (ValueError, TypeError):
        return ["what was remembered cannot be read"]


def publishes_all(table: PublishedTable) -> bool:
    """Whether every insert, update, delete and truncate of the table is told."""
    return all(json.loads(table.fingerprint)["publish"])


def members(files: str) -> set[str]:
    """The parts of PublishedTable.filenode, one for the table itself and for each of its partitions."""
    return set(files.split(","))


def why_copy_partitions(session: psycopg.Connection, table: PublishedTable, copy: TableCopy) -> str | None:
    """Why a partitioned table needs another copy: a partition left it or lost its file (a TRUNCATE of one partition is
    not told in the name of its root, and cannot be told from VACUUM FULL), or came with rows.

    None for partitions that came empty: all of their rows are in the stream."""
    if not table.partitioned:
        return None
    before, now = members(copy.filenode), members(table.filenode)
    if before - now:
        return "a partition was detached, dropped, truncated or rewritten"
    if any(_came_with_rows(session, int(member.split(":")[0])) for member in now - before):
        return "a partition with rows was attached"
    return None


def _came_with_rows(session: psycopg.Connection, partition: int) -> bool:
    """Whether it holds a row that is not younger than its attachment. What cannot be looked at counts as one that does.

    One statement, for ages are counted from the moment of a statement."""
    row = session.execute(
        """
        select n.nspname, k.relname, k.relkind = 'p' as no_file,
               k.relkind = 'r' and has_table_privilege(k.oid, 'select') and not row_security_active(k.oid) as readable
          from pg_class k join pg_namespace n on n.oid = k.relnamespace
         where k.oid = %s::oid
        """,
        [partition],
    ).fetchone()
    if row is None:
        return True
    schema, name, no_file, readable = row
    if no_file:
        return False
    if not readable:
        return True
    query = sql.SQL(
        """
        select exists (select from only {leaf}
                        where age(xmin) >= (select min(age(i.xmin))
                                              from pg_partition_ancestors(%s::oid::regclass) a
                                              join pg_inherits i on i.inhrelid = a.relid))
        """
    ).format(leaf=sql.Identifier(schema, name))
    try:
        found = session.execute(query, [partition]).fetchone()
    except psycopg.errors.UndefinedTable:
        return True
    return found is None or found[0]
