"""Waits until a destination has everything before an LSN, as its feedback on Kafka tells.

An LSN that bounds something excludes what starts there: a transaction with commit LSN c is there when feedback.lsn > c.
What `pg_current_wal_lsn()` returns after the commit lies beyond c, so feedback.lsn >= that LSN is exactly enough.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterable

from console.errors import NotYetThere
from console.pipeline_state import read_feedback
from console.status import tables_behind
from schemas.errors import DestinationError, Retry
from schemas.feedback import Feedback, TableReport
from schemas.identifiers import DestinationName, PipelineName, TableName
from schemas.lsn import Lsn
from schemas.phases import Errored
from stores.kafka_log import KafkaLog

_LOOK_SECONDS = 0.2


class Held(enum.Enum):
    """What is done about a table that is Errored, and so does not move."""

    PASSED_OVER = "passed over"
    RAISED = "raised"


def wait_until_there(
    log: KafkaLog,
    pipeline: PipelineName,
    destination: DestinationName,
    lsn: Lsn,
    timeout: float,
    *,
    held: Held,
    tables: Iterable[TableName] = (),
    between: Callable[[], None] = lambda: None,
) -> Feedback:
    """Returns when the destination has everything before `lsn`: all tables it knows, and all of `tables`, are that far.

    Raises NotYetThere after `timeout` seconds; with Held.RAISED, DestinationError at once where only a human can help.
    `between` is called between two looks and may raise."""
    expected = tuple(tables)
    until = time.monotonic() + timeout
    while True:
        feedback = read_feedback(log, pipeline, [destination]).get(destination)
        behind = tables_behind(feedback, lsn, expected) if feedback is not None else []
        match held:
            case Held.PASSED_OVER:
                behind = [each for each in behind if not _is_held(each)]
            case Held.RAISED:
                _raise_first_held(destination, behind)
        if feedback is not None and feedback.lsn >= lsn and not behind:
            return feedback
        if time.monotonic() >= until:
            raise NotYetThere(_what_is_missing(destination, lsn, timeout, feedback, behind))
        between()
        time.sleep(_LOOK_SECONDS)


def _is_held(table: TableReport | TableName) -> bool:
    return isinstance(table, TableReport) and isinstance(table.phase, Errored)


def _raise_first_held(destination: DestinationName, behind: list[TableReport | TableName]) -> None:
    for table in behind:
        match table:
            case TableReport(table=name, phase=Errored(retry=Retry.MANUAL, reason=reason, solution=solution)):
                raise DestinationError(
                    f"Table {name} is held at destination {destination}: {reason}", solution=solution
                )
            case _:
                continue


def _what_is_missing(
    destination: DestinationName,
    lsn: Lsn,
    timeout: float,
    feedback: Feedback | None,
    behind: list[TableReport | TableName],
) -> str:
    if feedback is None:
        return f"Destination {destination} has sent no feedback within {timeout:g} s."
    if feedback.lsn < lsn:
        return (
            f"Destination {destination} is at {feedback.lsn} after {timeout:g} s, {lsn - feedback.lsn:,} bytes of WAL "
            f"before {lsn}."
        )
    names = ", ".join(
        f"{each.table} ({type(each.phase).__name__})" if isinstance(each, TableReport) else f"{each} (not known yet)"
        for each in behind
    )
    return f"Destination {destination} is at {feedback.lsn}, but after {timeout:g} s these tables are not: {names}."
