"""A DuckDB file with a mirror of each table. It is open only while a batch is written, so that others can read it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
from pydantic import BaseModel, Field

from apply_spark.destinations.duckdb_files import LockFile, opened_when_free
from apply_spark.destinations.duckdb_mirrors import DuckDbMirrors
from schemas.identifiers import DestinationName
from schemas.settings import checked


class DuckDbOptions(BaseModel, frozen=True, extra="forbid"):
    """`[destinations.NAME]` with `type = "duckdb"`."""

    path: Path = Field(description="The DuckDB file; made if it is not there.")
    lock_timeout: timedelta = Field(
        default=timedelta(seconds=30), description="How long to wait while another program holds the file."
    )


class DuckDbDestination(DuckDbMirrors):
    """One DuckDB file."""

    def __init__(self, name: DestinationName, options: Mapping[str, Any]) -> None:
        super().__init__(name, DuckDbFile(checked(DuckDbOptions, options, f"destinations.{name}")))


class DuckDbFile(LockFile):
    """The file as a `Database`."""

    def __init__(self, options: DuckDbOptions) -> None:
        super().__init__(options.path)
        self._options = options

    def connected(self) -> tuple[duckdb.DuckDBPyConnection, str]:
        path = self._options.path
        path.parent.mkdir(parents=True, exist_ok=True)
        db = opened_when_free(str(path), self._options.lock_timeout, lambda: duckdb.connect(str(path)))
        (catalog,) = db.execute("select current_database()").fetchone() or ("",)
        return db, catalog
