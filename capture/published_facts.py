"""What is known of each table before it is captured: how its rows are told apart, how much a copy has to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg import sql

from capture.findings import Catalog
from capture.publication import FILES
from schemas.identifiers import OWN_SCHEMA, PublicationName, TableName
from schemas.table import ReplicaIdentity

_SINCE_15 = 150_000
_SINCE_18 = 180_000
_FACTS = """
select n.nspname as schema, c.relname as name, c.relreplident as identity, k.index, k.key,
       (select sum(r.reltuples) filter (where r.reltuples >= 0)::bigint
          from {files} f join pg_class r on r.oid = f.relid) as rows,
       (select sum(pg_table_size(f.relid))::bigint from {files} f) as bytes,
       (select array_agg(a.attname::text order by a.attnum)
          from pg_attribute a
         where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and {left_out}) as left_out,
       (select array_agg(a.attname::text)
          from pg_attribute a
         where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated <> '') as generated,
       {row_filter} as row_filter,
       p.pubupdate or p.pubdelete as changes
  from pg_publication_tables t
  join pg_publication p on p.pubname = t.pubname
  join pg_namespace n on n.nspname = t.schemaname
  join pg_class c on c.relnamespace = n.oid and c.relname = t.tablename
  left join lateral (
       select x.relname as index, array_agg(a.attname::text order by i.place) as key
         from pg_index d
         join pg_class x on x.oid = d.indexrelid
        cross join lateral unnest(d.indkey) with ordinality i (number, place)
         join pg_attribute a on a.attrelid = c.oid and a.attnum = i.number
        where d.indrelid = c.oid and case c.relreplident when 'i' then d.indisreplident
                                                         else d.indisprimary and d.indimmediate end
        group by x.relname) k on true
 where t.pubname = %s and t.schemaname <> %s
 order by 1, 2
"""
_LEFT_OUT_IN_14 = sql.SQL("a.attgenerated <> ''")
_LEFT_OUT_SINCE_15 = sql.SQL("(a.attgenerated <> '' or not a.attname = any (t.attnames))")
_LEFT_OUT_SINCE_18 = sql.SQL("not a.attname = any (t.attnames)")


@dataclass(frozen=True)
class TableFacts:
    """A published table. `rows` is the planner's estimate, None where the table was never analyzed."""

    table: TableName
    identity: ReplicaIdentity
    index: str | None
    key: tuple[str, ...]
    rows: int | None
    bytes: int
    """What a copy reads: the table with its TOASTed values, or its leaves, without indexes."""
    left_out: tuple[str, ...]
    """Columns that are not published: generated ones, and those that a column list does not name."""
    generated: tuple[str, ...]
    row_filter: str | None
    changes: bool
    """Whether updates or deletes are published."""

    @property
    def identity_in_words(self) -> str:
        match self.identity:
            case ReplicaIdentity.FULL:
                return "full"
            case ReplicaIdentity.NOTHING:
                return "nothing"
            case ReplicaIdentity.INDEX:
                return f"index {self.index}" if self.index else "none"
            case ReplicaIdentity.DEFAULT:
                return "primary key" if self.index else "none"

    @property
    def hidden_identity(self) -> tuple[str, ...]:
        """Columns of the identity that a column list leaves out. With FULL, every column is one."""
        if self.identity is ReplicaIdentity.FULL:
            return tuple(name for name in self.left_out if name not in self.generated)
        return tuple(name for name in self.key if name in self.left_out)


def table_facts(connection: Catalog, publication: PublicationName) -> list[TableFacts]:
    """Of every table of the publication, by name; no row is read."""
    version = connection.info.server_version
    left_out = _LEFT_OUT_IN_14
    if version >= _SINCE_15:
        left_out = _LEFT_OUT_SINCE_18 if version >= _SINCE_18 else _LEFT_OUT_SINCE_15
    query = sql.SQL(_FACTS).format(
        files=sql.SQL(FILES),
        left_out=left_out,
        row_filter=sql.SQL("t.rowfilter") if version >= _SINCE_15 else sql.SQL("null::text"),
    )
    return [_facts(row) for row in connection.execute(query, (publication, OWN_SCHEMA)).fetchall()]


def _facts(row: dict[str, Any]) -> TableFacts:
    return TableFacts(
        table=TableName(row["schema"], row["name"]),
        identity=ReplicaIdentity(row["identity"]),
        index=row["index"],
        key=tuple(row["key"] or ()),
        rows=row["rows"],
        bytes=row["bytes"] or 0,
        left_out=tuple(row["left_out"] or ()),
        generated=tuple(row["generated"] or ()),
        row_filter=row["row_filter"],
        changes=row["changes"],
    )
