"""Records as capture writes them, read with the schemas that they name; each schema is parsed once."""

from __future__ import annotations

import io
from typing import Any

import fastavro

from schemas.identifiers import SchemaId
from schemas.table import TableSchema
from schemas.wire import HEADER_BYTES, schema_id_of
from stores.schema_topic import SchemaTopic


class Envelopes:
    def __init__(self, schemas: SchemaTopic) -> None:
        self._schemas = schemas
        self._parsed: dict[SchemaId, tuple[TableSchema, Any]] = {}

    def read(self, record: bytes | None) -> tuple[TableSchema, dict[str, Any]]:
        """The table as it was at that record, and the envelope."""
        assert record is not None
        number = schema_id_of(record)
        if number not in self._parsed:
            registered = self._schemas.get(number)
            assert registered.table is not None
            self._parsed[number] = registered.table, fastavro.parse_schema(registered.avro)
        table, avro = self._parsed[number]
        envelope = fastavro.schemaless_reader(io.BytesIO(record[HEADER_BYTES:]), avro, None)
        assert isinstance(envelope, dict)
        return table, envelope
