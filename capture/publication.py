"""What the publication says now: its tables, their shapes, files and membership.

One transaction, one moment: a table's fingerprint, filenode and schema belong together.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import dict_row, tuple_row

from capture.catalog_types import CatalogTypes, catalog_types, looked_through
from capture.errors import PartlyPublished, PublicationMissing
from schemas.identifiers import OWN_SCHEMA, PublicationName, TableId, TableName
from schemas.table import Column, ReplicaIdentity, TableSchema


@dataclass(frozen=True)
class TableFile:
    """A relation that holds rows: a table, or a leaf of a partitioned one."""

    id: TableId
    name: TableName
    blocks: int
    """How many there were when somebody looked; there may be more by now."""
    divisible: bool
    """Whether it can be read by ranges of blocks: a heap can, a foreign table cannot."""


@dataclass(frozen=True)
class PublishedTable:
    """A table of the publication."""

    schema: TableSchema
    files: tuple[TableFile, ...]
    """Where its rows lie; empty if they can only be read through the table itself."""
    filenode: str
    """The files of the table and its partitions, and how each is attached: where one of them is another one, rows
    moved without MVCC or without events."""
    fingerprint: str
    """How the table is a member: another value means that there may be a hole in its changes."""
    row_filter: str | None
    partitioned: bool
    size: int
    toastable: bool
    """Whether a value of one of its rows may be stored apart, and then be left out of an update."""

    @property
    def name(self) -> TableName:
        return self.schema.name


_TABLES = """
select c.oid::bigint as id, n.nspname as schema, c.relname as name, c.relreplident as identity, c.relnatts as width,
       c.relkind = 'p' as partitioned, {columns} as published_columns, {row_filter} as row_filter,
       {filenode} as filenode,
       (select coalesce(sum(pg_relation_size(f.relid)), 0)::bigint from {files} f) as size,
       exists (select from {files} f join pg_class k on k.oid = f.relid where k.reltoastrelid <> 0) as toastable,
       (select json_agg(json_build_object('id', k.oid::bigint, 'schema', s.nspname, 'name', k.relname,
                                          'blocks', coalesce(pg_relation_size(k.oid), 0)
                                                    / current_setting('block_size')::int,
                                          'divisible', k.relkind = 'r' and k.relam = (select oid from pg_am
                                                                                       where amname = 'heap'),
                                          'readable', k.oid = c.oid or (has_table_privilege(k.oid, 'select')
                                                                        and not row_security_active(k.oid)))
                        order by k.oid)
          from {files} f join pg_class k on k.oid = f.relid join pg_namespace s on s.oid = k.relnamespace) as files,
       (select json_agg(json_build_object('name', a.attname, 'type_oid', a.atttypid::bigint,
                                          'type_name', format_type(a.atttypid, a.atttypmod),
                                          'modifier', a.atttypmod, 'nullable', not a.attnotnull,
                                          'generated', a.attgenerated <> '', 'number', a.attnum,
                                          'missing', a.attmissingval::text) order by a.attnum)
          from pg_attribute a
         where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as columns,
       (select i.indkey::int2[] from pg_index i
         where i.indrelid = c.oid and i.indisprimary and i.indimmediate) as primary_key,
       (select i.indkey::int2[] from pg_index i where i.indrelid = c.oid and i.indisreplident) as identity_index,
       (select json_build_object(
                   'table', c.oid::bigint,
                   'publication', p.oid::bigint,
                   'all tables', p.puballtables,
                   'publish', array[p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate],
                   'publish_via_partition_root', p.pubviaroot,
                   'publish_generated_columns', {generated},
                   'entry', (select json_agg(r.oid::bigint order by r.oid) from {lineage} l
                               join pg_publication_rel r on r.prrelid = l.relid and r.prpubid = p.oid),
                   'entry of the schema', {schema_entries},
                   'row filter', {row_filter},
                   'column list', {column_list},
                   'partition of', (select json_agg(i.xmin::text order by i.inhrelid) from {lineage} l
                                      join pg_inherits i on i.inhrelid = l.relid
                                     where c.relispartition and not p.puballtables))
          from pg_publication p
         where p.pubname = t.pubname) as membership
  from pg_publication_tables t
  join pg_namespace n on n.nspname = t.schemaname
  join pg_class c on c.relnamespace = n.oid and c.relname = t.tablename
 where t.pubname = %s and (%s::text is null or (t.schemaname = %s and t.tablename = %s)) and t.schemaname <> %s
 order by 2, 3
"""
_LINEAGE = "(select c.oid as relid union select a.relid::oid from pg_partition_ancestors(c.oid) a)"
"""A leaf is a member where one of these is."""
FILES = """(select c.oid as relid where c.relkind <> 'p'
               union select t.relid::oid from pg_partition_tree(c.oid) t where t.isleaf)"""
"""The relations that hold the rows of `c`: itself, or its leaves."""
# The transaction that wrote a row of pg_inherits stays readable: a partition that is attached again has another. One
# that is attached at this very moment may be in the tree, which is that of now, and not yet in the rows of our moment:
# it is left to the next look.
_FILENODE = """(select string_agg(f.relid::text || ':' || coalesce(pg_relation_filenode(f.relid), 0)
                                  || ':' || coalesce(i.xmin::text, ''), ',' order by f.relid)
                  from (select c.oid as relid union select t.relid::oid from pg_partition_tree(c.oid) t) f
                  left join pg_inherits i on i.inhrelid = f.relid and i.inhseqno = 1
                 where f.relid = c.oid or i.inhrelid is not null)"""
_IN_14 = {
    "columns": "null::text[]",
    "row_filter": "null::text",
    "column_list": "null::text",
    "schema_entries": "null::json",
    "generated": "null::text",
}
_SINCE_15 = {
    **_IN_14,
    "columns": "t.attnames::text[]",
    "row_filter": "t.rowfilter",
    "column_list": """(select r.prattrs::text from pg_publication_rel r
                        where r.prpubid = p.oid and r.prrelid = c.oid)""",
    "schema_entries": """(select json_agg(s.oid::bigint order by s.oid)
                            from pg_publication_namespace s
                           where s.pnpubid = p.oid
                             and s.pnnspid in (select k.relnamespace from pg_class k
                                                where k.oid = c.oid or k.oid in (select a.relid::oid
                                                        from pg_partition_ancestors(c.oid) a)))""",
}
_SINCE_18 = {**_SINCE_15, "generated": "p.pubgencols::text"}
_OPERATIONS = ("insert", "update", "delete", "truncate")
_VERSION_15 = 150_000
_VERSION_18 = 180_000
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def published_tables(
    connection: psycopg.Connection[Any], publication: PublicationName, only: TableName | None = None
) -> list[PublishedTable]:
    """Every table of the publication, or the one that is asked for, as it is now; never one of penstock's own.

    A primary key that is checked only after a statement is no key: rows may pass through each other's values."""
    known = connection.execute("select 1 from pg_publication where pubname = %s", [publication]).fetchone()
    if known is None:
        raise PublicationMissing(
            f"Publication {publication} does not exist.",
            solution=f'create publication "{publication}" for all tables; -- or: for table a, b, c',
        )
    version = connection.info.server_version
    parts = _SINCE_18 if version >= _VERSION_18 else _SINCE_15 if version >= _VERSION_15 else _IN_14
    query = _TABLES.format(files=FILES, filenode=_FILENODE, lineage=_LINEAGE, **parts)
    with connection.cursor(row_factory=dict_row) as cursor:
        schema, name = only or (None, None)
        rows = cursor.execute(query, [publication, name, schema, name, OWN_SCHEMA]).fetchall()
    types = catalog_types(connection, {column["type_oid"] for row in rows for column in row["columns"] or ()})
    return [_published(row, version, types) for row in rows]


def _published(row: dict[str, Any], version: int, types: CatalogTypes) -> PublishedTable:
    identity = ReplicaIdentity(row["identity"])
    numbers = row["identity_index"] if identity is ReplicaIdentity.INDEX else row["primary_key"]
    columns = [
        column
        for column in row["columns"]
        if _is_published(column, row["published_columns"], trusted=version >= _VERSION_18)
    ]
    complete = set(numbers or ()) <= {column["number"] for column in columns}
    key = set(numbers or ()) if complete else set()
    return PublishedTable(
        schema=TableSchema(
            id=TableId(row["id"]),
            name=TableName(row["schema"], row["name"]),
            identity=identity,
            width=row["width"] if len(columns) == len(row["columns"]) else 0,
            columns=tuple(
                looked_through(
                    Column(
                        name=column["name"],
                        type_oid=column["type_oid"],
                        type_name=column["type_name"],
                        modifier=column["modifier"],
                        nullable=column["nullable"],
                        key=column["number"] in key,
                        number=column["number"],
                        missing=missing_text(column["missing"]),
                    ),
                    types,
                )
                for column in columns
            ),
        ),
        files=_files(row["files"] or []),
        filenode=row["filenode"] or "",
        fingerprint=json.dumps(row["membership"], sort_keys=True),
        row_filter=row["row_filter"],
        partitioned=row["partitioned"],
        size=row["size"],
        toastable=row["toastable"],
    )


def _files(rows: list[dict[str, Any]]) -> tuple[TableFile, ...]:
    """None of them if one may not be read: who may read a partitioned table need not be allowed to read its leaves."""
    if not all(row["readable"] for row in rows):
        return ()
    return tuple(
        TableFile(TableId(row["id"]), TableName(row["schema"], row["name"]), row["blocks"], row["divisible"])
        for row in rows
    )


def _is_published(column: dict[str, Any], listed: list[str] | None, *, trusted: bool) -> bool:
    """Before 18 generated columns are never published; from 18 on the list tells whether they are."""
    if listed is None:
        return not column["generated"]
    return column["name"] in listed and (trusted or not column["generated"])


def missing_text(literal: str | None) -> str | None:
    """pg_attribute.attmissingval, an array of one item, as the text of that item."""
    if literal is None:
        return None
    item = literal[1:-1]
    return _ESCAPE.sub(r"\1", item[1:-1]) if item.startswith('"') else item


def filenode(session: psycopg.Connection, table: TableId) -> str:
    """The table's files now, as PublishedTable has them."""
    row = session.execute(
        f"select {_FILENODE} from pg_class c where c.oid = %s::oid",  # noqa: S608 -- constants only
        [table],
    ).fetchone()
    return (row[0] if row else None) or ""


def require_whole(connection: psycopg.Connection[Any], publication: PublicationName) -> None:
    """Raises PartlyPublished if the publication withholds some operations, and exists."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(
            "select pubinsert, pubupdate, pubdelete, pubtruncate from pg_publication where pubname = %s", [publication]
        ).fetchone()
    withheld = [name for name, published in zip(_OPERATIONS, row or (), strict=False) if not published]
    if withheld:
        raise PartlyPublished(
            f"Publication {publication} does not publish {' and '.join(withheld)}: "
            "destinations would drift away from the source.",
            solution=f"Run `alter publication \"{publication}\" set (publish = '{', '.join(_OPERATIONS)}');`, "
            'or set `source.partial_publish = "allow"` if destinations shall get no more than that.',
        )
