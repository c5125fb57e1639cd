"""Findings about the publication and its tables: what is published, and whether it can be read and told apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from psycopg import sql

from capture.config import CaptureConfig, PartialPublish
from capture.errors import PartlyPublished, PublicationMissing
from capture.findings import Catalog, Finding, Severity, one, text
from capture.publication import require_whole
from schemas.identifiers import OWN_SCHEMA, TableName
from schemas.table import ReplicaIdentity
from schemas.topics import TopicNameTooLong, Topics

_NAMED_PARTITIONS = 3


def publication_findings(connection: Catalog, config: CaptureConfig) -> Iterator[Finding]:
    name = config.source.publication
    row = one(
        connection,
        "select exists (select from pg_publication where pubname = %s) as present, "
        "(select count(*) from pg_publication_tables where pubname = %s and schemaname <> %s) as tables",
        name,
        name,
        OWN_SCHEMA,
    )
    if not row["present"] and config.source.tables:
        yield Finding(Severity.OK, "publication", f"Publication {name} does not exist yet; capture makes it.")
        return
    if not row["present"]:
        create = text(connection, "create publication {} for table TABLE, ...;", name)
        yield Finding(
            Severity.PROBLEM,
            "publication",
            f"There is no publication {name} in database {connection.info.dbname}.",
            f"Run `{create}`, or correct `source.publication`.",
            PublicationMissing,
        )
        return
    if row["tables"] == 0:
        yield Finding(
            Severity.WARNING,
            "publication",
            f"Publication {name} has no tables; there is nothing to capture until it has.",
            f"Run `{text(connection, 'alter publication {} add table TABLE;', name)}`; a running capture notices it.",
        )
    else:
        yield Finding(Severity.OK, "publication", f"Publication {name} has {row['tables']} tables.")
    try:
        require_whole(connection, name)
    except PartlyPublished as error:
        allowed = config.source.partial_publish is PartialPublish.ALLOW
        severity = Severity.WARNING if allowed else Severity.PROBLEM
        yield Finding(severity, "publish", error.reason, error.solution, PartlyPublished)


# A partitioned table that is published by its root is identified by its leaves: the identity of a root is not theirs.
_TABLES = """
select n.nspname as schema, c.relname as name, c.relreplident as identity,
       has_schema_privilege(n.oid, 'usage') as may_enter,
       has_table_privilege(c.oid, 'select') or coalesce((
           select bool_and(has_column_privilege(c.oid, a.attnum, 'select'))
             from pg_attribute a
            where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and {published}), false) as may_read,
       row_security_active(c.oid) as hides_rows,
       (select json_agg(json_build_object(
                   'table', json_build_array(s.nspname, k.relname),
                   'identity', k.relreplident,
                   'none', (p.pubupdate or p.pubdelete) and case k.relreplident
                       when 'f' then false
                       when 'n' then true
                       when 'i' then not exists (select from pg_index i where i.indrelid = k.oid and i.indisreplident)
                       else not exists (select from pg_index i
                                         where i.indrelid = k.oid and i.indisprimary and i.indimmediate)
                   end) order by s.nspname, k.relname)
          from (select c.oid as relid where c.relkind <> 'p'
                 union select l.relid::oid from pg_partition_tree(c.oid) l where l.isleaf) f
          join pg_class k on k.oid = f.relid
          join pg_namespace s on s.oid = k.relnamespace) as files
  from pg_publication_tables t
  join pg_publication p on p.pubname = t.pubname
  join pg_namespace n on n.nspname = t.schemaname
  join pg_class c on c.relnamespace = n.oid and c.relname = t.tablename
 where t.pubname = %s and t.schemaname <> %s
 order by 1, 2
"""
_COLUMN_LISTS_SINCE = 150_000


def table_findings(connection: Catalog, config: CaptureConfig) -> Iterator[Finding]:
    has_lists = connection.info.server_version >= _COLUMN_LISTS_SINCE
    published = sql.SQL("a.attname = any (t.attnames)") if has_lists else sql.SQL("true")
    query = sql.SQL(_TABLES).format(published=published)
    rows = connection.execute(query, (config.source.publication, OWN_SCHEMA)).fetchall()
    topics = Topics(config.pipeline)
    findings = [
        finding
        for row in rows
        for finding in (*_access(connection, row), *_identity(connection, row), *_topic(topics, row))
    ]
    if rows and not findings:
        yield Finding(Severity.OK, "tables", f"All {len(rows)} tables can be read and have a replica identity.")
    yield from findings


def _access(connection: Catalog, row: dict[str, Any]) -> Iterator[Finding]:
    table = TableName(row["schema"], row["name"])
    role = connection.info.user
    if not row["may_enter"]:
        solution = text(connection, "grant usage on schema {} to {};", table.schema, role)
        yield Finding(
            Severity.PROBLEM, str(table), f"Role {role} may not use schema {table.schema}.", f"Run `{solution}`."
        )
    if not row["may_read"]:
        solution = text(connection, "grant select on {} to {};", table, role)
        yield Finding(Severity.PROBLEM, str(table), f"Role {role} may not read table {table}.", f"Run `{solution}`.")
    if row["hides_rows"]:
        solution = text(connection, "alter role {} bypassrls;", role)
        reason = f"Row security hides rows of table {table} from role {role}: a copy would miss them without an error."
        yield Finding(Severity.PROBLEM, str(table), reason, f"Run `{solution}`.")


def _topic(topics: Topics, row: dict[str, Any]) -> Iterator[Finding]:
    table = TableName(row["schema"], row["name"])
    too_long = topics.too_long(table)
    if too_long is not None:
        yield Finding(
            Severity.WARNING, str(table), f"{too_long.reason} It is not captured.", too_long.solution, TopicNameTooLong
        )


def _identity(connection: Catalog, row: dict[str, Any]) -> Iterator[Finding]:
    table = TableName(row["schema"], row["name"])
    files = {TableName(*file["table"]): file for file in row["files"] or ()}
    for each in _first(name for name, file in files.items() if file["none"]):
        key = text(connection, "alter table {} add primary key (COLUMN, ...);", table)
        full = text(connection, "alter table {} replica identity full;", each)
        what = f"Table {table}" if each == table else f"Partition {each} of table {table}"
        yield Finding(
            Severity.WARNING,
            str(table),
            f"{what} has no replica identity: Postgres refuses its updates and deletes while it is published.",
            f"If it has more than inserts, run `{key}` or `{full}`.",
        )
    # What is written to WAL is the leaf's identity, what the stream says of it is the root's: one must hold the other.
    full = ReplicaIdentity.FULL.value
    other = (
        name
        for name, file in files.items()
        if file["identity"] not in (row["identity"], full) and not file["none"] and name != table
    )
    for each in _first(other):
        solution = text(connection, "alter table {} replica identity full;", each)
        yield Finding(
            Severity.WARNING if row["identity"] == full else Severity.PROBLEM,
            str(table),
            f"Partition {each} has another replica identity than table {table}, in whose name its rows are published: "
            "Postgres does not give it to the partitions.",
            f"Run `{solution}`, or give it the identity of {table}; the same for later partitions.",
        )


def _first(partitions: Iterator[TableName]) -> list[TableName]:
    """A table may have thousands of partitions, all of one kind."""
    return [name for name, _ in zip(partitions, range(_NAMED_PARTITIONS), strict=False)]
