"""A DuckLake: Parquet files, their metadata in a DuckDB file or in Postgres, transactions over all tables.

DuckDB writes it, so it is a DuckDB file in all but where rows lie: several programs can read and write it at once, each
sees one snapshot, and older ones can be asked for. A commit that meets another one of the same tables fails as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb
import psycopg
from pydantic import BaseModel, Field, SecretStr

from apply_spark.destinations.duckdb_files import LockFile, opened_when_free
from apply_spark.destinations.duckdb_mirrors import DuckDbMirrors
from apply_spark.errors import DestinationAway, DestinationInUse
from schemas.errors import DestinationError
from schemas.identifiers import DestinationName
from schemas.settings import checked

_POSTGRES = "postgres:"
_ATTACHED = "lake"
_NO_INLINING = "data_inlining_row_limit 0"
"""A delete that DuckLake keeps in its metadata is lost if the file is merged at that moment, and the row comes back."""


class DuckLakeOptions(BaseModel, frozen=True, extra="forbid"):
    """`[destinations.NAME]` with `type = "ducklake"`."""

    catalog: SecretStr = Field(
        description="Where DuckLake keeps its metadata: a file, or `postgres:` and how to reach a database."
    )
    data_path: str = Field(description="Where the Parquet files go: a folder, or what DuckDB's httpfs can reach.")
    lock_timeout: timedelta = Field(
        default=timedelta(seconds=30), description="How long to wait while another program holds the metadata file."
    )


class ExtensionMissing(DestinationError):
    """DuckDB lacks an extension and cannot fetch it."""


class DuckLakeDestination(DuckDbMirrors):
    """One DuckLake."""

    def __init__(self, name: DestinationName, options: Mapping[str, Any]) -> None:
        read = checked(DuckLakeOptions, options, f"destinations.{name}")
        catalog = read.catalog.get_secret_value()
        on_postgres = catalog.startswith(_POSTGRES)
        super().__init__(name, LakeOnPostgres(name, read) if on_postgres else LakeInFile(Path(catalog), read))


class LakeInFile(LockFile):
    """Metadata in a DuckDB file, which is open only while a batch is written."""

    def __init__(self, path: Path, options: DuckLakeOptions) -> None:
        super().__init__(path)
        self._path = path
        self._options = options

    def connected(self) -> tuple[duckdb.DuckDBPyConnection, str]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return _attached(str(self._path), str(self._path), self._options), _ATTACHED


class LakeOnPostgres:
    """Metadata in Postgres. A session there holds an advisory lock for as long as apply runs."""

    def __init__(self, name: DestinationName, options: DuckLakeOptions) -> None:
        self._name = name
        self._options = options
        self._session: psycopg.Connection | None = None

    def hold(self) -> None:
        catalog = self._options.catalog.get_secret_value()
        try:
            session = psycopg.connect(catalog.removeprefix(_POSTGRES), autocommit=True)
            locked = session.execute("select pg_try_advisory_lock(hashtextextended(%s, 0))", [f"penstock {self._name}"])
            held = locked.fetchone() == (True,)
        except (psycopg.Error, ValueError) as error:  # ValueError: letters that no connection string has
            reason = f"The catalog of destination {self._name} does not answer ({type(error).__name__})."
            raise DestinationAway(reason) from None
        if not held:
            session.close()
            raise DestinationInUse(f"Another apply writes to destination {self._name}.")
        self._session = session

    def let_go(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def connected(self) -> tuple[duckdb.DuckDBPyConnection, str]:
        catalog = self._options.catalog.get_secret_value()
        return _attached(catalog, f"the catalog of destination {self._name}", self._options), _ATTACHED


def _attached(catalog: str, what: str, options: DuckLakeOptions) -> duckdb.DuckDBPyConnection:
    address, data = (text.replace("'", "''") for text in (catalog, options.data_path))

    def opened() -> duckdb.DuckDBPyConnection:
        db = duckdb.connect()
        try:
            load_extension(db, "ducklake")
            if catalog.startswith(_POSTGRES):
                load_extension(db, "postgres_scanner")
            db.execute(f"attach 'ducklake:{address}' as {_ATTACHED} (data_path '{data}', {_NO_INLINING})")
        except BaseException:
            db.close()
            raise
        return db

    return opened_when_free(what, options.lock_timeout, opened)


def load_extension(db: duckdb.DuckDBPyConnection, name: str) -> None:
    """From the package that brings it, if that is installed; else DuckDB looks in its own folder, or fetches it."""
    try:
        folder = files(f"duckdb_extension_{name}")
    except ModuleNotFoundError:
        try:
            db.execute(f"install {name}; load {name}")
        except duckdb.Error:
            raise ExtensionMissing(
                f"DuckDB has no extension {name}, and could not fetch it.",
                solution="Run `pip install 'penstock[ducklake]'`.",
            ) from None
        return
    path = str(folder / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension")
    db.execute("load '{}'".format(path.replace("'", "''")))
