"""How far the copy of a table is, and how long it will take yet: an estimate, from what the log and the source say.

A copy goes two ways. To Kafka, while its table is in Init: records on its copy topic, of the rows that the source's
planner expects, at the pace since the first of them. To the destination, while its table is in DataSync: rows that are
applied, of those on the copy topic, at the pace since the oldest feedback that still tells of this copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from schemas.feedback import Feedback, TableReport
from schemas.identifiers import DestinationName
from schemas.phases import DataSync

_MICROSECONDS = 1_000_000
_NOT_ALL = 0.99
"""What is expected may be too little: only the log tells that all is there."""


class OnKafka(NamedTuple):
    """What a copy topic has."""

    records: int
    began: int | None
    """When the first of them was written, in microseconds since 1970."""


class CopyProgress(NamedTuple):
    """None: not known."""

    share: float | None
    seconds_left: int | None


def to_kafka(topic: OnKafka, expected: int | None, now: int) -> CopyProgress:
    since = (topic.began, 0) if topic.began is not None else None
    return _progress(topic.records, expected, since, now)


def to_destination(
    report: TableReport, topic: OnKafka, destination: DestinationName, recent: Sequence[Feedback], now: int
) -> CopyProgress:
    """`recent`: feedback of all destinations, oldest first."""
    before = (
        (feedback.applied_at, each.rows_copied)
        for feedback in recent
        if feedback.destination == destination
        for each in feedback.tables
        if each.table == report.table and each.generation == report.generation and isinstance(each.phase, DataSync)
    )
    return _progress(report.rows_copied, topic.records, next(before, None), now)


def _progress(done: int, total: int | None, since: tuple[int, int] | None, now: int) -> CopyProgress:
    """`since`: a moment, and how many rows were done then."""
    if not total:
        return CopyProgress(None, None)
    left = None
    if since is not None and done > since[1] and done < total:
        left = round((total - done) * (now - since[0]) / (done - since[1]) / _MICROSECONDS)
    return CopyProgress(round(min(done / total, _NOT_ALL), 3), left)
