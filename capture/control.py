"""Commands from the control topic. Each is done once: the checkpoint records the offset after the last one done.

A switch of the policy is in force until the next one, so the topic itself, which keeps its records, remembers it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import structlog
from confluent_kafka import OFFSET_BEGINNING

from schemas.acknowledge import AcknowledgeConfig
from schemas.control import CaptureCommand, Control, SwitchPolicy
from schemas.wire import NotOurRecord
from stores.kafka_log import KafkaLog
from stores.kafka_tail import Tail

log = structlog.get_logger(__name__)


class ControlReader:
    """What operators and destinations ask for."""

    def __init__(self, tail: Tail, next_offset: int) -> None:
        self._tail = tail
        self.next_offset = next_offset

    def new(self) -> Iterator[CaptureCommand]:
        """Commands to do; those that are for apply are passed over. One is done when the caller asks for the next."""
        for record in self._tail.new():
            try:
                control = record.read(Control.decode)
            except NotOurRecord as error:
                log.warning("command not understood", topic=record.topic, offset=record.offset, error=error.reason)
            else:
                if isinstance(control.command, CaptureCommand):
                    log.info("command received", name=type(control.command).__name__, command=control.id)
                    yield control.command
            self.next_offset = record.offset + 1


def switched_policy(kafka: KafkaLog, topic: str, done: int) -> AcknowledgeConfig | None:
    """What the commands before the offset `done` have left in force; None: the configured policy."""
    wanted = None
    for record in kafka.read(topic, OFFSET_BEGINNING, done):
        with suppress(NotOurRecord):  # told when it came
            command = record.read(Control.decode).command
            if isinstance(command, SwitchPolicy):
                wanted = command.wanted
    return wanted
