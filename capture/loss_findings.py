"""Findings about what would not arrive: tables without WAL, rows that Postgres or Kafka will refuse."""

from __future__ import annotations

from collections.abc import Iterator

from capture.config import CaptureConfig
from capture.findings import Catalog, Finding, Severity, text
from capture.published_facts import TableFacts, table_facts
from schemas.identifiers import OWN_SCHEMA, TableName
from schemas.patterns import matching

_NAMED_TABLES = 3
_SCHEMAS_SINCE = 150_000
_UNLOGGED = """
select n.nspname as schema, c.relname as name
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where c.relkind in ('r', 'p') and c.relpersistence = 'u' and n.nspname <> %s
 order by 1, 2
"""


def loss_findings(connection: Catalog, config: CaptureConfig) -> Iterator[Finding]:
    yield from _unlogged(connection, config)
    for facts in table_facts(connection, config.source.publication):
        if facts.changes and facts.hidden_identity:
            yield _hidden(connection, facts)
        if facts.rows and facts.bytes // facts.rows > config.kafka.max_record:
            yield Finding(
                Severity.WARNING,
                str(facts.table),
                f"Rows of table {facts.table} have {facts.bytes // facts.rows:,} bytes on average; "
                f"a record may have {int(config.kafka.max_record):,}: the table would stop.",
                "Raise `kafka.max_record`.",
            )


def _hidden(connection: Catalog, facts: TableFacts) -> Finding:
    names = ", ".join(facts.hidden_identity)
    solution = text(connection, "alter publication NAME set table {} (COLUMN, ...);", facts.table)
    return Finding(
        Severity.WARNING,
        str(facts.table),
        f"The column list of table {facts.table} leaves out {names}, which its replica identity has: Postgres refuses "
        "its updates and deletes while it is published.",
        f"Name these columns as well: `{solution}`.",
    )


def _unlogged(connection: Catalog, config: CaptureConfig) -> Iterator[Finding]:
    """Tables that the publication would have, did they write WAL. Postgres leaves them out without a word."""
    wanted = _within(
        connection, config, [TableName(*row.values()) for row in connection.execute(_UNLOGGED, (OWN_SCHEMA,))]
    )
    for table in wanted[:_NAMED_TABLES]:
        yield Finding(
            Severity.WARNING,
            str(table),
            f"Table {table} is unlogged: it writes no WAL, and is not captured.",
            f"Run `{text(connection, 'alter table {} set logged;', table)}` if it shall be.",
        )


def _within(connection: Catalog, config: CaptureConfig, tables: list[TableName]) -> list[TableName]:
    if not tables:
        return []
    if config.source.tables:
        return matching(tables, config.source.tables)
    name = config.source.publication
    row = connection.execute("select puballtables from pg_publication where pubname = %s", (name,)).fetchone()
    if row is None or row["puballtables"]:
        return tables if row is not None else []
    if connection.info.server_version < _SCHEMAS_SINCE:
        return []
    schemas = connection.execute(
        "select n.nspname from pg_publication p join pg_publication_namespace s on s.pnpubid = p.oid "
        "join pg_namespace n on n.oid = s.pnnspid where p.pubname = %s",
        (name,),
    ).fetchall()
    published = {row["nspname"] for row in schemas}
    return [table for table in tables if table.schema in published]
