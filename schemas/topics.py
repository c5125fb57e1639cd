"""Every topic name is built and parsed here.

A Postgres name may hold any character, a topic name only letters, digits, `.`, `_` and `-`. What is not a letter,
digit or underscore is written as `-` and two hex digits for each UTF-8 byte (`Order Items` -> `Order-20Items`),
so a name can be read back and two names never share a topic.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from schemas.errors import LogError
from schemas.identifiers import PipelineName, TableName
from schemas.lsn import NOWHERE, Lsn

_PLAIN = re.compile(rb"[A-Za-z0-9_]")
_ESCAPED = re.compile(rb"-([0-9a-f]{2})")
_LONGEST = 249
_PARTS_OF_A_CHANGE_TOPIC = 3


class TopicNameTooLong(LogError):
    """Kafka takes no topic name longer than 249 characters."""

    solution = "Rename the table, or leave it out of the publication."


@dataclass(frozen=True)
class Topics:
    """The topics of one pipeline."""

    pipeline: PipelineName

    @property
    def checkpoints(self) -> str:
        return f"{self.pipeline}.checkpoints"

    @property
    def feedback(self) -> str:
        return f"{self.pipeline}.feedback"

    @property
    def schemas(self) -> str:
        return f"{self.pipeline}.schemas"

    @property
    def control(self) -> str:
        return f"{self.pipeline}.control"

    def changes(self, table: TableName) -> str:
        return self._checked(f"{self.pipeline}.{escaped(table.schema)}.{escaped(table.name)}", table)

    def copy(self, table: TableName, generation: Lsn) -> str:
        return self._checked(f"{self.changes(table)}.copy.{generation:016x}", table)

    def too_long(self, table: TableName) -> TopicNameTooLong | None:
        """Why the table cannot have topics; None: it can."""
        try:
            self.copy(table, NOWHERE)
        except TopicNameTooLong as error:
            return error
        return None

    def table_of_changes(self, topic: str) -> TableName | None:
        """The table whose changes a topic holds; None for every other topic."""
        parts = topic.split(".")
        if len(parts) != _PARTS_OF_A_CHANGE_TOPIC or parts[0] != self.pipeline:
            return None
        try:
            table = TableName(_unescape(parts[1]), _unescape(parts[2]))
        except UnicodeDecodeError:
            return None
        return table if self.changes(table) == topic else None

    @staticmethod
    def _checked(topic: str, table: TableName) -> str:
        if len(topic) > _LONGEST:
            raise TopicNameTooLong(f"The topic of table {table} would have a name of {len(topic)} characters.")
        return topic


def escaped(name: str) -> str:
    return "".join(chr(byte) if _PLAIN.fullmatch(bytes([byte])) else f"-{byte:02x}" for byte in name.encode("utf-8"))


def _unescape(escaped: str) -> str:
    return _ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), escaped.encode()).decode("utf-8")
