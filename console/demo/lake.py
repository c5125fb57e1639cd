"""Reads the DuckDB file beside the apply that writes it: opened read-only, for a moment, again where it is locked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
from psycopg import sql

from schemas.errors import DestinationError
from schemas.identifiers import TableName

_LOOK_SECONDS = 0.02


class LakeBusy(DestinationError):
    """The file stayed locked, or is not there yet."""

    solution = "Close the program that holds the file; apply itself holds it only while it writes."


@contextmanager
def open_lake(path: Path, seconds: float) -> Iterator[duckdb.DuckDBPyConnection]:
    """A read-only connection, tried again for `seconds` while another process has the file."""
    until = time.monotonic() + seconds
    while True:
        try:
            connection = duckdb.connect(str(path), read_only=True)
        except (duckdb.IOException, duckdb.ConnectionException) as error:
            if time.monotonic() >= until:
                raise LakeBusy(f"{path} could not be opened for {seconds:g} s.") from error
            time.sleep(_LOOK_SECONDS)
        else:
            break
    try:
        yield connection
    finally:
        connection.close()


def row_count(lake: duckdb.DuckDBPyConnection, table: TableName) -> int | None:
    """Rows of a table; None where it is not there yet."""
    query = sql.SQL("select count(*) from {}").format(sql.Identifier(*table)).as_string()
    try:
        row = lake.execute(query).fetchone()
    except duckdb.CatalogException:
        return None
    assert row is not None  # noqa: S101 -- count(*) has one row
    return int(row[0])


def row_counts(path: Path, tables: tuple[TableName, ...], seconds: float) -> dict[TableName, int | None]:
    """Rows of each table, at one moment; None for all where the file cannot be read now."""
    try:
        with open_lake(path, seconds) as lake:
            return {table: row_count(lake, table) for table in tables}
    except LakeBusy:
        return dict.fromkeys(tables)
