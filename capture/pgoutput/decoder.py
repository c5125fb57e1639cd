"""The bytes of one pgoutput message in, one value out.

Pure and bounds-checked: whatever the bytes are, the answer is a message or `MalformedMessage` with the offset. Nothing
is skipped: bytes left over, unknown tags and unknown flags are refused, and so are binary values: we ask for text.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from capture.pgoutput.messages import (
    UNCHANGED,
    Begin,
    ColumnValue,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    OldKind,
    Origin,
    Relation,
    RelationColumn,
    Truncate,
    TupleData,
    Type,
    Update,
)
from schemas.errors import MalformedMessage
from schemas.identifiers import TableId
from schemas.lsn import Lsn
from schemas.table import ReplicaIdentity

POSTGRES_EPOCH = 946_684_800_000_000
"""2000-01-01, where the server's clock begins, in microseconds since 1970."""
LARGEST_TIME = 2**63 // 1000
"""The last time, in microseconds, whose nanoseconds are an Avro long."""
LARGEST_LSN = 2**63 - 1
"""The last position that is an Avro long: after 8 million terabytes of WAL."""

_U8 = struct.Struct(">B")
_U16 = struct.Struct(">H")
_I32 = struct.Struct(">i")
_U32 = struct.Struct(">I")
_I64 = struct.Struct(">q")
_U64 = struct.Struct(">Q")

_NULL, _UNCHANGED, _TEXT, _BINARY = b"nutb"
_NEW = ord("N")
_OLD_KINDS = {ord(kind.value): kind for kind in OldKind}
_IDENTITIES = {ord(identity.value): identity for identity in ReplicaIdentity}

_NO_FLAGS = 0
_COLUMN_IS_KEY = 1
_MESSAGE_IS_TRANSACTIONAL = 1
_TRUNCATE_CASCADES = 1
_TRUNCATE_RESTARTS_IDENTITY = 2


def decode(data: memoryview | bytes) -> Message:
    """The message that `data` is, from its tag to its last byte."""
    reader = _Reader(bytes(data))
    tag = reader.integer(_U8)
    read = _MESSAGES.get(tag)
    if read is None:
        raise MalformedMessage(f"No message of pgoutput has the tag {tag:#04x}", offset=0)
    message = read(reader)
    reader.finish()
    return message


class _Reader:
    """A place in the bytes of a message that only moves forward and never past the end."""

    __slots__ = ("_data", "_offset")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 0

    def integer(self, layout: struct.Struct) -> int:
        start = self._offset
        end = start + layout.size
        if end > len(self._data):
            raise self._truncated()
        self._offset = end
        value: int = layout.unpack_from(self._data, start)[0]
        return value

    def flags(self, known: int) -> int:
        value = self.integer(_U8)
        if value & ~known:
            raise MalformedMessage(f"The flags {value:#04x} are not all known", offset=self._offset - 1)
        return value

    def lsn(self) -> Lsn:
        lsn = self.integer(_U64)
        if lsn > LARGEST_LSN:
            raise MalformedMessage("No position in the log is so large", offset=self._offset - _U64.size)
        return Lsn(lsn)

    def time(self) -> int:
        time = self.integer(_I64) + POSTGRES_EPOCH
        if abs(time) > LARGEST_TIME:
            raise MalformedMessage("No transaction is so far from 1970", offset=self._offset - _I64.size)
        return time

    def table(self) -> TableId:
        return TableId(self.integer(_U32))

    def name(self) -> str:
        start = self._offset
        end = self._data.find(b"\0", start)
        if end < 0:
            raise self._truncated()
        self._offset = end + 1
        try:
            return self._data[start:end].decode("utf-8")
        except UnicodeDecodeError as error:
            raise MalformedMessage("A name is not UTF-8", offset=start + error.start) from error

    def namespace(self) -> str:
        return self.name() or "pg_catalog"

    def sized_bytes(self) -> bytes:
        size = self.integer(_U32)
        start = self._offset
        end = start + size
        if end > len(self._data):
            raise self._truncated()
        self._offset = end
        return self._data[start:end]

    def identity(self) -> ReplicaIdentity:
        tag = self.integer(_U8)
        identity = _IDENTITIES.get(tag)
        if identity is None:
            raise self.unknown("replica identity", tag)
        return identity

    def old_kind(self) -> OldKind | None:
        """What the tuple that follows holds of the old row; None where it is the new row."""
        tag = self.integer(_U8)
        kind = _OLD_KINDS.get(tag)
        if kind is None and tag != _NEW:
            raise self.unknown("tuple", tag)
        return kind

    def new_tuple(self) -> TupleData:
        tag = self.integer(_U8)
        if tag != _NEW:
            raise self.unknown("new tuple", tag)
        return self.tuple_data()

    def tuple_data(self) -> TupleData:
        return tuple([self._column_value() for _ in range(self.integer(_U16))])

    def _column_value(self) -> ColumnValue:
        tag = self.integer(_U8)
        if tag == _TEXT:
            return self.sized_bytes()
        if tag == _NULL:
            return None
        if tag == _UNCHANGED:
            return UNCHANGED
        if tag == _BINARY:
            raise MalformedMessage("A value is binary, which was not asked for", offset=self._offset - 1)
        raise self.unknown("value", tag)

    def tables(self, count: int) -> tuple[TableId, ...]:
        # Compared before anything is built: the count is 32 bits of somebody else's data.
        if count * _U32.size > len(self._data) - self._offset:
            raise self._truncated()
        return tuple([self.table() for _ in range(count)])

    def finish(self) -> None:
        left = len(self._data) - self._offset
        if left:
            raise MalformedMessage(f"The message is complete, but {left} bytes are left over", offset=self._offset)

    def _truncated(self) -> MalformedMessage:
        return MalformedMessage("The message ends early", offset=self._offset)

    def unknown(self, what: str, tag: int) -> MalformedMessage:
        return MalformedMessage(f"No {what} has the tag {tag:#04x}", offset=self._offset - 1)


def _insert(reader: _Reader) -> Insert:
    return Insert(reader.table(), reader.new_tuple())


def _update(reader: _Reader) -> Update:
    table = reader.table()
    kind = reader.old_kind()
    if kind is None:
        return Update(table, None, None, reader.tuple_data())
    return Update(table, reader.tuple_data(), kind, reader.new_tuple())


def _delete(reader: _Reader) -> Delete:
    table = reader.table()
    kind = reader.old_kind()
    if kind is None:
        raise reader.unknown("old tuple", _NEW)
    return Delete(table, reader.tuple_data(), kind)


def _begin(reader: _Reader) -> Begin:
    return Begin(reader.lsn(), reader.time(), reader.integer(_U32))


def _commit(reader: _Reader) -> Commit:
    reader.flags(_NO_FLAGS)
    return Commit(reader.lsn(), reader.lsn(), reader.time())


def _relation(reader: _Reader) -> Relation:
    return Relation(
        id=reader.table(),
        schema=reader.namespace(),
        name=reader.name(),
        identity=reader.identity(),
        columns=tuple([_column(reader) for _ in range(reader.integer(_U16))]),
    )


def _column(reader: _Reader) -> RelationColumn:
    flags = reader.flags(_COLUMN_IS_KEY)
    return RelationColumn(reader.name(), reader.integer(_U32), reader.integer(_I32), key=bool(flags & _COLUMN_IS_KEY))


def _type(reader: _Reader) -> Type:
    return Type(reader.integer(_U32), reader.namespace(), reader.name())


def _truncate(reader: _Reader) -> Truncate:
    count = reader.integer(_U32)
    flags = reader.flags(_TRUNCATE_CASCADES | _TRUNCATE_RESTARTS_IDENTITY)
    return Truncate(
        relations=reader.tables(count),
        cascade=bool(flags & _TRUNCATE_CASCADES),
        restart_identity=bool(flags & _TRUNCATE_RESTARTS_IDENTITY),
    )


def _logical_message(reader: _Reader) -> LogicalMessage:
    flags = reader.flags(_MESSAGE_IS_TRANSACTIONAL)
    return LogicalMessage(
        transactional=bool(flags & _MESSAGE_IS_TRANSACTIONAL),
        lsn=reader.lsn(),
        prefix=reader.name(),
        content=reader.sized_bytes(),
    )


def _origin(reader: _Reader) -> Origin:
    return Origin(reader.lsn(), reader.name())


_MESSAGES: dict[int, Callable[[_Reader], Message]] = {
    ord("I"): _insert,
    ord("U"): _update,
    ord("D"): _delete,
    ord("B"): _begin,
    ord("C"): _commit,
    ord("R"): _relation,
    ord("Y"): _type,
    ord("T"): _truncate,
    ord("M"): _logical_message,
    ord("O"): _origin,
}
