"""The shape of each table at each LSN: the Protocol and its value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from schemas.identifiers import SchemaId, TableName
from schemas.lsn import Lsn
from schemas.table import TableSchema


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """From `since` on, until the next version, the table has this shape."""

    table: TableName
    since: Lsn
    schema_id: SchemaId
    schema: TableSchema


class SchemaStore(Protocol):
    """Every shape a table had, as far back as anybody may ask.

    Threads, durability, repetition and several processes: as StateStore promises."""

    def put(self, version: SchemaVersion) -> None:
        """Remember the version; versions may come in any order.

        The same again changes nothing; another content for the same table and LSN is refused
        (SchemaVersionConflict)."""

    def at(self, table: TableName, lsn: Lsn) -> SchemaVersion | None:
        """The version valid at `lsn`: the newest with `since` <= lsn. None before the first one."""

    def latest(self, table: TableName) -> SchemaVersion | None:
        """The version with the highest `since`."""

    def prune(self, table: TableName, before: Lsn) -> int:
        """Forget the versions that no question about an LSN >= `before` is answered with; returns how many.

        The one valid at `before` stays, however old it is."""

    def forget(self, since: Lsn) -> None:
        """Forget the versions of all tables from `since` on: what is there is met again, or was of another history."""
