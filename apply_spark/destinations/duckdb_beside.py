"""Copies that are built beside the mirror that they are to replace: readers see the old rows until the new are ready.

Such a copy has the mirror's name and a suffix, in the same schema, for DuckDB moves no table to another one. It takes
the mirror's place in the transaction that makes its table Ready: by its name, no row is touched.
"""

from __future__ import annotations

from collections.abc import Collection

import duckdb

from apply_spark.destinations.duckdb_types import quoted
from apply_spark.errors import NotHeld, TableFailed
from apply_spark.progress import Progress
from schemas.identifiers import TableName
from schemas.phases import Ready

_SUFFIX = " (penstock copy)"


def beside(table: TableName) -> TableName:
    return TableName(table.schema, table.name + _SUFFIX)


def refuse_names_of_copies(table: TableName) -> None:
    if table.name.endswith(_SUFFIX):
        raise TableFailed(table, NotHeld(f"Names that end with {_SUFFIX!r} are those of penstock's unfinished copies."))


def copies_beside(db: duckdb.DuckDBPyConnection, catalog: str) -> frozenset[TableName]:
    """The tables whose next copy is being built."""
    found = db.execute(
        "select schema_name, table_name from duckdb_tables() where database_name = ? and ends_with(table_name, ?)",
        [catalog, _SUFFIX],
    ).fetchall()
    return frozenset(TableName(schema, name.removesuffix(_SUFFIX)) for schema, name in found)


def put_in_place(
    db: duckdb.DuckDBPyConnection, catalog: str, copies: Collection[TableName], progress: Progress
) -> None:
    """Copies whose tables are ready become their mirrors; those of tables that are gone go."""
    for table in copies:
        known = progress.tables.get(table)
        if known is None:
            db.execute(f"drop table {quoted(catalog, *beside(table))}")
        elif isinstance(known.phase, Ready):
            db.execute(f"drop table if exists {quoted(catalog, *table)}")
            db.execute(f"alter table {quoted(catalog, *beside(table))} rename to {quoted(table.name)}")
