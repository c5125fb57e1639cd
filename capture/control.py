"""Commands from the control topic. Each is done once: the checkpoint records the offset after the last one done."""

from __future__ import annotations

from collections.abc import Iterator

import structlog

from schemas.control import Command, Control
from schemas.errors import LogError
from schemas.identifiers import TableName
from stores.kafka_log import Tail

log = structlog.get_logger(__name__)


class ControlReader:
    """What operators and destinations ask for."""

    def __init__(self, tail: Tail, next_offset: int) -> None:
        self._tail = tail
        self.next_offset = next_offset

    def new_resyncs(self) -> Iterator[TableName]:
        """Tables to copy again. A record is done when the caller asks for the next."""
        for record in self._tail.new():
            try:
                control = Control.decode(record.value or b"")
            except LogError as error:
                log.warning("command not understood", offset=record.offset, error=error.reason)
            else:
                match control.command:
                    case Command.RESYNC:
                        log.info("resync requested", table=str(control.table), command=control.id)
                        yield control.table
            self.next_offset = record.offset + 1
