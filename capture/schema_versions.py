"""Which shape each table had from which commit on. Shapes that the stream meets in, versions in the store out.

A table may change its shape several times in one transaction; the last one counts, so versions are stored between
transactions. A shape that is met again, also after a restart, is no new version.
"""

from __future__ import annotations

from schemas.identifiers import SchemaId, TableName
from schemas.lsn import Lsn
from schemas.table import TableSchema
from stores.schema import SchemaStore, SchemaVersion


class SchemaVersions:
    """What was met since the last checkpoint, on top of what is stored: nothing from where the epoch begins on."""

    def __init__(self, store: SchemaStore) -> None:
        self._store = store
        self._met: dict[tuple[TableName, Lsn], SchemaVersion] = {}

    def met(self, schema: TableSchema, schema_id: SchemaId, since: Lsn) -> None:
        known = self._met.get((schema.name, since))
        if known is None or not known.schema.same_shape(schema):
            self._met[schema.name, since] = SchemaVersion(schema.name, since, schema_id, schema)

    def latest(self, table: TableName) -> SchemaVersion | None:
        """Of those that are stored."""
        return self._store.latest(table)

    def remember(self) -> None:
        """Durable when it returns. To be called before the checkpoint: after it, nobody meets these again."""
        for version in sorted(self._met.values(), key=lambda version: version.since):
            valid = self._store.at(version.table, version.since)
            if valid is None or not valid.schema.same_shape(version.schema):
                self._store.put(version)
        self._met.clear()
