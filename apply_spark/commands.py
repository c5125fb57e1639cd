"""What operators ask of the tables of a destination, from the control topic. Each command is done once, in order.

The offset of the next one is stored with the progress, in the same transaction as what a command does. A destination
that is new begins at the end of the topic: what was asked before was not asked of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import assert_never

import structlog

from apply_spark.progress import Progress, TableProgress
from schemas.control import ApplyCommand, Control, Pause, Resume, Rollback, Skip
from schemas.errors import DestinationError
from schemas.identifiers import DestinationName
from schemas.phases import Errored, Init, SyncDone
from schemas.wire import NotOurRecord
from stores.kafka_log import KafkaLog
from stores.kafka_tail import Tail

log = structlog.get_logger(__name__)


class CommandRefused(DestinationError):
    """A command that makes no sense for the table as it is."""


def first_command_of(kafka: KafkaLog, topic: str, stored: Progress | None) -> int:
    """After the last one that was done; where none was, the end of the topic.

    A control topic that ends before that place was made anew."""
    end = kafka.ends([topic])[topic][0]
    return end if stored is None or stored.control is None else min(stored.control, end)


class CommandReader:
    """The commands that are for one destination."""

    def __init__(self, tail: Tail, destination: DestinationName) -> None:
        self._tail = tail
        self._destination = destination

    def new(self) -> Iterator[tuple[int, ApplyCommand | None]]:
        """The offset of each new record, and what it asks of this destination, if anything."""
        for record in self._tail.new():
            try:
                control = record.read(Control.decode)
            except NotOurRecord as error:
                log.warning("command not understood", topic=record.topic, offset=record.offset, error=error.reason)
                yield record.offset, None
                continue
            yield record.offset, self._mine(control)

    def _mine(self, control: Control) -> ApplyCommand | None:
        command = control.command
        if not isinstance(command, ApplyCommand) or command.destination not in (None, self._destination):
            return None
        log.info("command received", name=type(command).__name__, command=control.id, table=str(command.table))
        return command


def commanded(progress: Progress, command: ApplyCommand) -> Progress:
    """The progress with the command done. CommandRefused: it makes no sense for the table as it is now."""
    table = progress.tables.get(command.table)
    if table is None:
        raise CommandRefused(f"Table {command.table} is not known here.")
    return progress.with_tables(_done(table, command)).levelled()


def _done(table: TableProgress, command: ApplyCommand) -> TableProgress:
    match command:
        case Rollback():
            _require_retriable(table)
            return replace(table.released(), attempts=0)
        case Pause():
            if table.paused:
                raise CommandRefused(f"Table {table.table} is paused already.")
            return replace(table, paused=True)
        case Resume():
            if not table.paused:
                raise CommandRefused(f"Table {table.table} is not paused.")
            resumed = replace(table, paused=False)
            return resumed if isinstance(table.phase, Errored) else resumed.released()
        case Skip(position=position):
            held = _require_retriable(table)
            if position.commit_lsn < table.lsn or not isinstance(table.released().phase, SyncDone):
                raise CommandRefused(
                    f"Table {table.table} stands at {table.lsn}, in the phase {type(held.held).__name__}: "
                    f"the change at {position} is not what holds it."
                )
            return replace(table.released(), attempts=0, skipped=(*table.skipped, position))
        case _:
            assert_never(command)


def _require_retriable(table: TableProgress) -> Errored:
    if not isinstance(table.phase, Errored):
        raise CommandRefused(f"Table {table.table} is not held by an error.")
    if isinstance(table.phase.held, Init) and table.copy_end is None:
        raise CommandRefused(
            f"Table {table.table} was stopped by capture, which left changes out.",
            solution=f"Run `penstock resync {table.table}`.",
        )
    return table.phase
