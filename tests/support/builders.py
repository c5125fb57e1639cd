"""Values for tests: each builder gives a plain one, and takes only what the test is about."""

from __future__ import annotations

import secrets
import struct
from collections.abc import Sequence
from typing import assert_never

from capture.pgoutput.messages import (
    UNCHANGED,
    Begin,
    ColumnValue,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Relation,
    Truncate,
    TupleData,
    Type,
    Update,
)
from destination_contract.tables import INT8, TEXT, a_column, a_table

__all__ = ["INT8", "TEXT", "a_column", "a_name", "a_table", "copy_line", "encode_message"]

_MICROSECONDS_TO_2000 = 946_684_800_000_000
_COPY_ESCAPES = {8: b"\\b", 9: b"\\t", 10: b"\\n", 11: b"\\v", 12: b"\\f", 13: b"\\r", 92: b"\\\\"}


def a_name() -> str:
    """A table name that no other test has."""
    return f"t_{secrets.token_hex(3)}"


def encode_message(message: Message) -> bytes:  # noqa: PLR0911 -- one case a message
    """The bytes in which pgoutput sends a message."""
    match message:
        case Insert():
            return struct.pack(">cIc", b"I", message.relation, b"N") + _tuple(message.new)
        case Update():
            old = b""
            if message.old is not None and message.old_kind is not None:
                old = message.old_kind.value.encode() + _tuple(message.old)
            return struct.pack(">cI", b"U", message.relation) + old + b"N" + _tuple(message.new)
        case Delete():
            return struct.pack(">cI", b"D", message.relation) + message.old_kind.value.encode() + _tuple(message.old)
        case Begin():
            return struct.pack(">cQqI", b"B", message.final_lsn, _wire_time(message.commit_ts), message.xid)
        case Commit():
            return struct.pack(">cBQQq", b"C", 0, message.lsn, message.end_lsn, _wire_time(message.commit_ts))
        case Relation():
            head = struct.pack(">cI", b"R", message.id) + _name(message.schema) + _name(message.name)
            columns = b"".join(
                struct.pack(">B", column.key)
                + _name(column.name)
                + struct.pack(">Ii", column.type_oid, column.modifier)
                for column in message.columns
            )
            return head + message.identity.value.encode() + struct.pack(">H", len(message.columns)) + columns
        case Type():
            return struct.pack(">cI", b"Y", message.oid) + _name(message.schema) + _name(message.name)
        case Truncate():
            flags = message.cascade | message.restart_identity << 1
            count = len(message.relations)
            return struct.pack(f">cIB{count}I", b"T", count, flags, *message.relations)
        case LogicalMessage():
            head = struct.pack(">cBQ", b"M", message.transactional, message.lsn)
            return head + _name(message.prefix) + struct.pack(">I", len(message.content)) + message.content
        case Origin():
            return struct.pack(">cQ", b"O", message.lsn) + _name(message.name)
        case _:
            assert_never(message)


def _tuple(values: TupleData) -> bytes:
    out = struct.pack(">H", len(values))
    for value in values:
        if value is None:
            out += b"n"
        elif value is UNCHANGED:
            out += b"u"
        else:
            out += b"t" + struct.pack(">I", len(value)) + value
    return out


def _name(text: str) -> bytes:
    return text.encode() + b"\0"


def _wire_time(since_1970: int) -> int:
    return since_1970 - _MICROSECONDS_TO_2000


def copy_line(values: Sequence[ColumnValue]) -> bytes:
    """The bytes in which COPY TO sends a row in text format, by CopyAttributeOutText of the server."""
    fields = [
        b"".join(_COPY_ESCAPES.get(byte, bytes((byte,))) for byte in value) if isinstance(value, bytes) else rb"\N"
        for value in values
    ]
    return b"\t".join(fields) + b"\n"
