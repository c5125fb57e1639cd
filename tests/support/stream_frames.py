"""Frames as a walsender sends them, and a pump with everything around it in memory."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from capture.pgoutput.messages import Message
from capture.transcode.choose import Path
from capture.transcode.contract import Given, Source, TableTranscoder
from schemas.identifiers import Epoch, PipelineName, SchemaId
from schemas.table import TableSchema
from tests.support.builders import encode_message

NOW = 1_700_000_000_123_456_789
FULL = 1_000


def xlog(message: Message | bytes, lsn: int = 0x16_B374_D000) -> bytes:
    payload = message if isinstance(message, bytes) else encode_message(message)
    return struct.pack(">cQQq", b"w", lsn, lsn, 1) + payload


def keepalive(end: int) -> bytes:
    return struct.pack(">cQqB", b"k", end, 1, 0)


def source_of(frames: Iterable[memoryview | bytes], last: int = 0) -> Source:
    """Gives the frames as libpq would, then that there are none."""
    left = iter(frames)

    def get_copy_data(_: int) -> Given:
        frame = next(left, None)
        return (last, b"") if frame is None else (len(frame), frame)

    return get_copy_data


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
        self.pump = self.path.pump(self.tables, self._send, 100, 200, FULL)

    def run(self, *frames: memoryview | bytes, limit: int = 1_000) -> Given | None:
        return self.pump.run(source_of(frames), limit)

    def _send(self, topic: str, key: bytes | None, value: bytes) -> None:
        self.sent.append((topic, key, value))
