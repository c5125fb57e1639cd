"""Frames as a walsender sends them, and a pump with everything around it in memory."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from capture.pgoutput.messages import Message
from capture.transcode.choose import Path
from capture.transcode.contract import Records, TableTranscoder
from schemas.identifiers import Epoch, PipelineName, SchemaId
from schemas.table import TableSchema
from tests.support.builders import encode_message

NOW = 1_700_000_000_123_456_789
FULL = 1_000
LARGEST = 100_000


def xlog(message: Message | bytes, lsn: int = 0x16_B374_D000) -> bytes:
    payload = message if isinstance(message, bytes) else encode_message(message)
    return struct.pack(">cQQq", b"w", lsn, lsn, 1) + payload


def keepalive(end: int) -> bytes:
    return struct.pack(">cQqB", b"k", end, 1, 0)


def messages_of(*frames: memoryview | bytes) -> bytes:
    """The frames as they come over the wire: each in a CopyData message."""
    return b"".join(b"d" + struct.pack("!I", len(frame) + 4) + bytes(frame) for frame in frames)


@dataclass
class Table:
    """A table in the stream."""

    topic: str
    transcoder: TableTranscoder
    errored: bool = False


@dataclass
class Pumping:
    """A pump of one path over some tables, and what it has sent."""

    path: Path
    schemas: tuple[TableSchema, ...]
    sent: list[tuple[str, bytes | None, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tables = {
            schema.id: Table(
                schema.name.name,
                self.path.transcoder(
                    PipelineName("shop"),
                    "shop",
                    schema,
                    (SchemaId(schema.id), SchemaId(8) if schema.key else None),
                    Epoch(1),
                    lambda: NOW,
                ),
            )
            for schema in self.schemas
        }
        self.pump = self.path.pump(self.tables, self._send, LARGEST, 100, 200, FULL)

    def run(self, *frames: memoryview | bytes) -> bytes | None:
        """The frame that the pump left, if it left one."""
        left = self.pump.run(messages_of(*frames))
        return None if left is None else bytes(left)

    def _send(self, topic: str, records: Records) -> None:
        sent = [(topic, record["key"], record["value"] or b"") for record in records.dicts]
        assert (len(records), records.size) == (len(sent), sum(len(value) for *_, value in sent))
        self.sent += sent
