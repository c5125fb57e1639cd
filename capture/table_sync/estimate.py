"""How many rows the copies of some tables will have, as the planner of the source expects it. No row is read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from capture.publication import published_tables
from capture.table_sync.copier import select_rows
from capture.table_sync.ranges import CopyRange
from schemas.identifiers import PublicationName, TableName


def expected_rows(
    connection: psycopg.Connection[Any], publication: PublicationName, tables: Iterable[TableName]
) -> dict[TableName, int]:
    """Of those tables that are published. Row filters, and growth since the last ANALYZE, are thought of."""
    found: dict[TableName, int] = {}
    for name in tables:
        for table in published_tables(connection, publication, only=name):
            query = sql.SQL("explain (format json) {}").format(select_rows(table, CopyRange(0)))
            with connection.cursor(row_factory=tuple_row) as cursor:
                ((plans,),) = cursor.execute(query).fetchall()
            found[name] = plans[0]["Plan"]["Plan Rows"]
    return found
