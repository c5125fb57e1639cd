"""The record on the control topic: a command to a running pipeline."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from schemas.identifiers import TableName
from schemas.wire import FixedCodec


class Command(enum.Enum):
    """What an operator, or a destination that found a gap, may ask for."""

    RESYNC = "resync"


@dataclass(frozen=True, slots=True)
class Control:
    """One command with an id, so that doing it twice can be told from asking twice."""

    id: str
    command: Command
    table: TableName

    def encode(self) -> bytes:
        return _CODEC.encode({"id": self.id, "command": self.command.value, "table": list(self.table)})

    @classmethod
    def decode(cls, record: bytes) -> Control:
        value = _CODEC.decode(record)
        return cls(value["id"], Command(value["command"]), TableName(*value["table"]))


_CODEC = FixedCodec(
    {
        "type": "record",
        "name": "Control",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "command", "type": "string"},
            {"name": "table", "type": {"type": "array", "items": "string"}},
        ],
    }
)
