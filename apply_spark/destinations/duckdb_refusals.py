"""What DuckDB refuses, told without its own messages: they may hold a value."""

# ruff: noqa: S608 -- DuckDB has no composer of statements: names pass through quoted

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from apply_spark.destinations.duckdb_types import converted, duckdb_type
from apply_spark.errors import NotHeld, TableFailed
from schemas.table import Column, TableSchema

REFUSED = (
    duckdb.DataError,
    duckdb.ProgrammingError,
    duckdb.IntegrityError,
    duckdb.NotSupportedError,
    duckdb.DependencyException,
)
"""What DuckDB says of a table or a value; the other errors are about the file, the disk or the memory."""


@contextmanager
def refusals(schema: TableSchema) -> Iterator[None]:
    """What DuckDB refuses to do with a table stops that table only. DuckDB's own message may hold a value."""
    try:
        yield
    except REFUSED as error:
        kind = type(error).__name__.removesuffix("Exception")
        raise TableFailed(
            schema.name,
            NotHeld(
                f"DuckDB refuses to write to its mirror ({kind} error): somebody dropped it or changed its shape.",
                solution="Undo that, and run `penstock rollback TABLE`; `penstock resync TABLE` makes the mirror anew.",
            ),
        ) from None


def unheld_value(
    db: duckdb.DuckDBPyConnection, schema: TableSchema, batch: pa.Table, error: duckdb.Error
) -> NotHeld | None:
    """Which column of the batch has a value that DuckDB cannot hold. None: it was not a value."""
    db.register("batch", batch)
    images = [("row", schema.columns), ("key", schema.key if "key" in batch.column_names else ())]
    guilty = next((c for image, columns in images for c in columns if not _fits(db, c, image)), None)
    if guilty is None:
        return None
    kind = type(error).__name__.removesuffix("Exception")
    held = duckdb_type(guilty)
    unheld = f"; it has no place for {held.unheld}" if held.unheld else ""
    return NotHeld(
        f"A value does not fit column {guilty.name} ({held.name}) in DuckDB ({kind} error){unheld}.",
        solution="Change the value, or leave the column out of the publication; then run `penstock resync TABLE`.",
    )


def _fits(db: duckdb.DuckDBPyConnection, column: Column, image: str) -> bool:
    try:
        db.execute(f"create or replace temp table probe as select {converted(column, image)} as c from batch")
    except REFUSED:
        return False
    return True
