"""Checkpoints and feedback as every reader takes them: records in, what they say out.

A topic is open to whoever may write there, so a record may be anybody's. One that is not of penstock is passed over,
with a warning that has its place. But a record of the checkpoints topic that has the header of the wire format may be a
checkpoint of another version, without which the log means something else: that ends the reader (NotOurRecord).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import structlog

from schemas.checkpoint import Checkpoint
from schemas.feedback import Feedback
from schemas.wire import NotOurRecord, schema_id_of
from stores.kafka_log import Record

log = structlog.get_logger(__name__)


def checkpoints(records: Iterable[Record]) -> Iterator[tuple[int, Checkpoint]]:
    """With their offsets."""
    for record in records:
        try:
            record.read(schema_id_of)
        except NotOurRecord as error:
            pass_over(record, error)
            continue
        yield record.offset, record.read(Checkpoint.decode)


def feedbacks(records: Iterable[Record]) -> Iterator[Feedback]:
    """A destination that somebody made the topic forget has no value."""
    for record in records:
        if record.value is None:
            continue
        try:
            yield record.read(Feedback.decode)
        except NotOurRecord as error:
            pass_over(record, error)


def pass_over(record: Record, error: NotOurRecord) -> None:
    log.warning(
        "record is not of penstock, passed over",
        topic=record.topic,
        offset=record.offset,
        error=error.reason,
        solution=error.solution,
    )
