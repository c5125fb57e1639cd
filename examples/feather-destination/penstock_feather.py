"""A folder of Feather files (Arrow's own file format), one for each table: `read(folder, table)` gives its rows.

Exactly once, over all tables: files are never changed. A batch writes the tables that it changes anew, under new names;
then a new manifest, which names the file of each table and holds the progress, takes the place of the old one. That is
one rename: before it nothing of the batch is there, after it all is. So it is for tables that fit into memory, and for
intervals that are not too many.

Values are as they travel: see the column `Spark` of penstock's page of types. An array is a struct, of the list and of
the literal that no list can hold.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from feather_merge import altered, appended, empty, merged, positional
from pydantic import BaseModel, Field

from apply_spark.destination import Batch
from apply_spark.errors import DestinationInUse, NotHeld, TableFailed
from apply_spark.progress import Progress
from apply_spark.rows import Rows
from schemas.identifiers import DestinationName, TableName
from schemas.settings import checked
from schemas.table import TableSchema

_MANIFEST = "manifest.json"


class FeatherOptions(BaseModel, frozen=True, extra="forbid"):
    """`[destinations.NAME]` with `type = "feather"`."""

    path: Path = Field(description="The folder; made if it is not there.")


def read(folder: Path, table: TableName) -> pa.Table:
    """The rows of a table, at the last interval that was written."""
    files: dict[str, str] = json.loads((folder / _MANIFEST).read_text())["files"]
    with pa.memory_map(str(folder / files[_key(table)])) as source:
        return pa.ipc.open_file(source).read_all()


class FeatherDestination:
    """One folder. It is locked for as long as apply runs, so that nobody else writes in between."""

    def __init__(self, name: DestinationName, options: Mapping[str, Any]) -> None:
        self.name = name
        self._folder = checked(FeatherOptions, options, f"destinations.{name}").path
        self._lock: int | None = None
        self._commits = 0
        self._files: dict[str, str] = {}

    def startup(self) -> Progress | None:
        self._folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise DestinationInUse(f"Another apply writes to {self._folder}.") from None
        self._lock = lock
        manifest = self._folder / _MANIFEST
        if not manifest.exists():
            return None
        stored = json.loads(manifest.read_text())
        self._commits, self._files = stored["commits"], stored["files"]
        self._sweep()
        return Progress.restored(tuple(stored["head"]), stored["tables"])

    def shutdown(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def drop_table_for_copy(self, schema: TableSchema, progress: Progress) -> None:
        self._commit(progress, {schema: empty(schema)})

    def write_table_rows(self, schema: TableSchema, rows: Rows, progress: Progress) -> None:
        self._commit(progress, {schema: appended(self._mirror(schema), rows.arrow())})

    def write_events(self, batch: Batch) -> None:
        mirrors: dict[TableName, tuple[TableSchema, pa.Table]] = {}
        for alteration in batch.altered:
            mirror = altered(self._mirror(alteration.before), alteration)
            mirrors[alteration.after.name] = alteration.after, mirror
        for changes in batch.tables:
            schema = changes.schema
            _, mirror = mirrors.get(schema.name) or (schema, self._mirror(schema))
            mirrors[schema.name] = schema, merged(mirror, changes)
        self._commit(batch.progress, dict(mirrors.values()))

    def save_progress(self, progress: Progress) -> None:
        self._commit(progress, {})

    def _mirror(self, schema: TableSchema) -> pa.Table:
        if _key(schema.name) not in self._files:
            raise TableFailed(
                schema.name, NotHeld("The manifest has no file of it.", solution="Run `penstock resync TABLE`.")
            )
        return positional(read(self._folder, schema.name))

    def _commit(self, progress: Progress, written: Mapping[TableSchema, pa.Table]) -> None:
        """All of it, or nothing."""
        commits, files = self._commits + 1, dict(self._files)
        for number, (schema, mirror) in enumerate(written.items()):
            name = f"{commits:012d}-{number}.feather"
            self._write(name, mirror.rename_columns([column.name for column in schema.columns]))
            files[_key(schema.name)] = name
        head, (_, _, tables) = progress.stored()
        manifest = self._folder / f"{_MANIFEST}.new"
        with manifest.open("w") as file:
            json.dump({"commits": commits, "files": files, "head": head, "tables": tables}, file)
            file.flush()
            os.fsync(file.fileno())
        manifest.replace(self._folder / _MANIFEST)
        self._sync_folder()
        self._commits, self._files = commits, files
        self._sweep()

    def _write(self, name: str, rows: pa.Table) -> None:
        with (self._folder / name).open("wb") as file:
            with pa.ipc.new_file(file, rows.schema) as out:
                out.write_table(rows)
            file.flush()
            os.fsync(file.fileno())

    def _sync_folder(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _sweep(self) -> None:
        """Files that no manifest names: of older commits, and of one that a crash interrupted."""
        for file in self._folder.glob("*.feather"):
            if file.name not in self._files.values():
                file.unlink()


def _key(table: TableName) -> str:
    """Of a table in the manifest; two names never give the same."""
    return json.dumps(table)
