"""What a new destination can be filled with: the log and the offsets that retention has left in, copies out.

A table is filled from its newest copy that was begun by then, if every record of it and of the changes since is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING

from apply_spark.history import History, LoggedCopy
from apply_spark.intervals import accepted
from apply_spark.read import OffsetRange
from apply_spark.replay_target import Numbered, moment_text
from schemas.epochs import EpochRule
from schemas.identifiers import LogId, TableName
from schemas.lsn import Lsn
from schemas.topics import Topics
from stores.kafka_log import KafkaLog
from stores.small_topics import feedbacks


@dataclass(frozen=True)
class Reach:
    """The copies that fill the tables as of a moment, and why there is none for the others."""

    copies: tuple[LoggedCopy, ...]
    missing: dict[TableName, str]

    def of(self, wanted: Callable[[TableName], bool]) -> Reach:
        """Of these tables only."""
        copies = tuple(copy for copy in self.copies if wanted(copy.started.table))
        return Reach(copies, {table: reason for table, reason in self.missing.items() if wanted(table)})


def log_of(kafka: KafkaLog, topics: Topics, end: int, log_id: LogId | None = None) -> Iterator[Numbered]:
    """The checkpoints that count, of that log or of all, below an offset: capture may write on meanwhile."""
    for offset, checkpoint in accepted(kafka.read(topics.checkpoints, OFFSET_BEGINNING, end), EpochRule()):
        if log_id is None or checkpoint.log_id == log_id:
            yield offset, checkpoint


def log_end(kafka: KafkaLog, topics: Topics) -> int:
    return kafka.ends([topics.checkpoints])[topics.checkpoints][0]


def reach(kafka: KafkaLog, topics: Topics, told: History, lsn: Lsn) -> Reach:
    """For every table that the pipeline had at `lsn`, as far as anything still tells."""
    begun = {table: copy for table in told.copies if (copy := told.copy_at(table, lsn)) is not None}
    there = _offsets(kafka, [each for copy in begun.values() for each in _topics_of(topics, copy)])
    copies, missing = [], without_copies(kafka, topics, told)
    for table, known in told.copies.items():
        if told.is_gone(table, lsn):
            continue
        copy = begun.get(table)
        if copy is None:
            missing[table] = f"Its oldest copy on the topics is of {known[0].generation}."
            continue
        reason = copy.unreached(lsn) or _cut(topics, copy, there, told)
        if reason is None:
            copies.append(copy)
        else:
            missing[table] = reason
    return Reach(tuple(copies), dict(sorted(missing.items())))


def without_copies(kafka: KafkaLog, topics: Topics, told: History) -> dict[TableName, str]:
    """Tables of which the log tells no copy any more: they have changes, or a destination holds them."""
    if told.whole:
        return {}
    present = {topic: table for topic in kafka.topics() if (table := topics.table_of_changes(topic)) is not None}
    with_records = [topic for topic, range_ in _offsets(kafka, present).items() if range_.end > range_.start]
    named = {present[topic] for topic in {*with_records, *told.moved} if topic in present}
    named |= _at_destinations(kafka, topics, told.log_id)
    reason = (
        f"No copy of it is left in the log, which begins at {told.first.start} "
        f"({moment_text(told.first.emitted_at)}): the retention of the topics is over for older ones."
    )
    return dict.fromkeys(sorted(named - told.copies.keys() - told.removed.keys()), reason)


def _at_destinations(kafka: KafkaLog, topics: Topics, log_id: LogId) -> set[TableName]:
    """What every destination told last."""
    last = {record.key: record for record in kafka.read_all(topics.feedback)}
    told = [feedback for feedback in feedbacks(last.values()) if feedback.log_id == log_id]
    return {report.table for feedback in told for report in feedback.tables}


def _topics_of(topics: Topics, copy: LoggedCopy) -> tuple[str, str]:
    table = copy.started.table
    return topics.changes(table), topics.copy(table, copy.generation)


def _offsets(kafka: KafkaLog, wanted: Iterable[str]) -> dict[str, OffsetRange]:
    """Of those that are there."""
    present = set(wanted) & kafka.topics()
    begins, ends = kafka.begins(present), kafka.ends(present)
    return {topic: OffsetRange(begins[topic][0], ends[topic][0]) for topic in present}


def _cut(topics: Topics, copy: LoggedCopy, there: dict[str, OffsetRange], told: History) -> str | None:
    """Why the records that are needed are not all there; None: they are."""
    assert copy.finished is not None  # noqa: S101 -- or it would not reach
    changes, copied = _topics_of(topics, copy)
    if copy.started.log_from < told.first_offset:
        return f"The log since its copy of {copy.generation} is cut: it begins at {told.first.start}."
    needed = {changes: OffsetRange(copy.started.changes_from, copy.started.changes_from)}
    if copy.finished.ends[0]:
        needed[copied] = OffsetRange(0, copy.finished.ends[0])
    for topic, range_ in needed.items():
        found = there.get(topic)
        if found is None:
            return f"Topic {topic} does not exist any more."
        if found.start > range_.start:
            return f"Topic {topic} begins at offset {found.start}; {range_.start} is needed, but its time is up."
        if found.end < range_.end:
            return f"Topic {topic} ends at offset {found.end}, before {range_.end}."
    return None
