"""Confluent's wire format: byte 0x00, four bytes schema id (big endian), Avro binary."""

from __future__ import annotations

import hashlib
import io
import json
import struct
from collections.abc import Callable
from typing import Any, TypeVar

import fastavro

from schemas.errors import LogError, StateTooNew
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


class NewerRecord(NotOurRecord):
    """A record whose schema this version does not know."""

    solution = StateTooNew.solution


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
    """Bytes of the records whose schema is part of the protocol: checkpoints, feedback, control.

    `former`: schemas of releases before, whole, whose records are still on topics. A new field has a default. A record
    of any other schema is of a newer penstock, and refused."""

    def __init__(self, schema: dict[str, Any], *former: dict[str, Any]) -> None:
        self._schema = fastavro.parse_schema(schema)
        self._name = schema["name"]
        self.id = derived_id(schema)
        self._former = {derived_id(each): fastavro.parse_schema(each) for each in former}

    def encode(self, value: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        out.write(header(self.id))
        fastavro.schemaless_writer(out, self._schema, value)
        return out.getvalue()

    def decode(self, record: bytes, made: Callable[[dict[str, Any]], T]) -> T:
        """What `made` makes of the fields. NotOurRecord, and nothing else, for bytes that no penstock wrote."""
        written_as = schema_id_of(record)
        writer = self._schema if written_as == self.id else self._former.get(written_as)
        if writer is None:
            raise NewerRecord(
                f"A record has schema {written_as}, which is no {self._name} that this penstock knows: a newer "
                "penstock wrote it, or somebody who should not write to this topic."
            )
        reader = None if written_as == self.id else self._schema
        body = io.BytesIO(record[HEADER_BYTES:])
        try:
            value = fastavro.schemaless_reader(body, writer, reader, return_record_name=True)
            assert isinstance(value, dict)  # noqa: S101 -- every fixed schema is a record
            found = made(value)
        except _NOT_ITS_BODY:
            # Without its cause, which may repeat what was written.
            raise NotOurRecord(f"A record has the header of a {self._name}, but not its body.") from None
        if body.read(1):
            raise NotOurRecord(f"A record is longer than a {self._name}.")
        return found
