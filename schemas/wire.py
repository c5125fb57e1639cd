"""Confluent's wire format: byte 0x00, four bytes schema id (big endian), Avro binary."""

from __future__ import annotations

import hashlib
import io
import json
import struct
from collections.abc import Callable
from typing import Any, TypeVar

import fastavro

from schemas.errors import LogError
from schemas.identifiers import SchemaId

T = TypeVar("T")

HEADER_BYTES = 5
_HEADER = struct.Struct(">bI")
_NOT_ITS_BODY = (
    *(EOFError, LookupError, ValueError, TypeError, AttributeError, OverflowError),
    *(struct.error, MemoryError, RecursionError),
)
"""What reading bytes that somebody else wrote may end with, in fastavro or in what is made of its values."""


class NotOurRecord(LogError):
    """A record on one of our topics that penstock did not write, or not this version of it."""

    solution = "Find who writes there besides penstock, and take that permission away."


def header(schema: SchemaId) -> bytes:
    return _HEADER.pack(0, schema)


def schema_id_of(record: bytes) -> SchemaId:
    if len(record) < HEADER_BYTES or record[0] != 0:
        raise NotOurRecord("A record does not begin with the header of Confluent's wire format.")
    return SchemaId(_HEADER.unpack_from(record)[1])


def derived_id(schema: object) -> SchemaId:
    """31 bits of the SHA-256 of the schema's canonical JSON: nothing is allotted, nothing races."""
    canonical = json.dumps(schema, sort_keys=True, separators=(",", ":"))
    return SchemaId(int.from_bytes(hashlib.sha256(canonical.encode()).digest()[:4], "big") & 0x7FFF_FFFF)


class FixedCodec:
    """Bytes of the records whose schema is part of the protocol: checkpoints, feedback, control."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = fastavro.parse_schema(schema)
        self._name = schema["name"]
        self.id = derived_id(schema)

    def encode(self, value: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        out.write(header(self.id))
        fastavro.schemaless_writer(out, self._schema, value)
        return out.getvalue()

    def decode(self, record: bytes, made: Callable[[dict[str, Any]], T]) -> T:
        """What `made` makes of the fields. NotOurRecord, and nothing else, for bytes that no penstock wrote."""
        if schema_id_of(record) != self.id:
            raise NotOurRecord(f"A record is not a {self._name} of this version of penstock.")
        body = io.BytesIO(record[HEADER_BYTES:])
        try:
            value = fastavro.schemaless_reader(body, self._schema, None, return_record_name=True)
            assert isinstance(value, dict)  # noqa: S101 -- every fixed schema is a record
            found = made(value)
        except _NOT_ITS_BODY:
            # Without its cause, which may repeat what was written.
            raise NotOurRecord(f"A record has the header of a {self._name}, but not its body.") from None
        if body.read(1):
            raise NotOurRecord(f"A record is longer than a {self._name}.")
        return found
