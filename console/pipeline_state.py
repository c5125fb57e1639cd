"""What Kafka and Postgres say of a pipeline, in one look each: no stage is asked, so a dead one is seen too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg

from capture.control import switched_policy
from capture.slot_wal import SlotWal, read_slot_wal, wal_end
from capture.table_sync.estimate import expected_rows
from capture.waiting import Writers, snapshot_waits
from console.config import Config
from console.copy_progress import OnKafka
from console.replayable import Replayable
from schemas.acknowledge import AcknowledgeConfig
from schemas.checkpoint import Checkpoint
from schemas.epochs import EpochRule
from schemas.feedback import Feedback
from schemas.identifiers import DestinationName, PipelineName, TableName, slot_name
from schemas.lsn import Lsn
from schemas.phases import DataSync, Init
from schemas.topics import Topics
from stores.kafka_errors import TopicMissing
from stores.kafka_log import KafkaLog
from stores.small_topics import checkpoints, feedbacks

CHECKPOINTS = 1000
"""So many of the newest are read."""
_RECENT, _NEWEST = 500, 10
"""So much feedback is read first: for how it went, and for where a destination is."""


@dataclass(frozen=True)
class SlotState:
    """The slot as Postgres shows it."""

    active_pid: int | None
    confirmed_flush_lsn: Lsn | None
    restart_lsn: Lsn | None
    wal_status: str | None


@dataclass(frozen=True)
class SourceState:
    """Where the source's WAL ends, and its slot."""

    wal_lsn: Lsn
    now: int
    """Microseconds since 1970, by the source's clock."""
    slot: SlotState | None
    slot_wal: SlotWal | None = None
    snapshot_waits: Writers | None = None
    """Whom the snapshot of a copy waits for; None where none is waited for."""
    expected_rows: Mapping[TableName, int] = field(default_factory=dict)
    """How many rows copies to Kafka will have, as far as the planner knows."""


@dataclass(frozen=True)
class LogState:
    """What the small topics say: accepted checkpoints, oldest first, and the newest feedback of each destination."""

    checkpoints: tuple[Checkpoint, ...]
    feedback: dict[DestinationName, Feedback]
    recent: tuple[Feedback, ...] = ()
    """The last few hundred of all destinations, oldest first."""
    switched: AcknowledgeConfig | None = None
    """The policy that an operator switched to; None: the configured one is in force."""
    copied: Mapping[str, OnKafka] = field(default_factory=dict)
    """What the copy topics have that destinations wait for, or apply."""
    copying: frozenset[TableName] = frozenset()
    """The tables of which some rows are copied to Kafka, and not all, as far as destinations know."""
    replayable: Mapping[TableName, Replayable] = field(default_factory=dict)
    """From where on a replay can have each table."""

    @property
    def last(self) -> Checkpoint | None:
        return self.checkpoints[-1] if self.checkpoints else None


def read_source(
    connection: psycopg.Connection[dict[str, Any]], config: Config, copying: Iterable[TableName]
) -> SourceState:
    """One look at Postgres. The WAL position is read first, so no slot is seen ahead of it."""
    wal_lsn = wal_end(connection)
    row = connection.execute("select (extract(epoch from clock_timestamp()) * 1000000)::bigint as now").fetchone()
    assert row is not None  # noqa: S101 -- a select without from has one row
    slot = connection.execute(
        "select active_pid, confirmed_flush_lsn::text as confirmed, restart_lsn::text as restart, wal_status "
        "from pg_replication_slots where slot_name = %s",
        (slot_name(config.pipeline),),
    ).fetchone()
    return SourceState(
        wal_lsn=wal_lsn,
        now=row["now"],
        slot=None
        if slot is None
        else SlotState(slot["active_pid"], _lsn(slot["confirmed"]), _lsn(slot["restart"]), slot["wal_status"]),
        slot_wal=read_slot_wal(connection, slot_name(config.pipeline)),
        snapshot_waits=snapshot_waits(connection, config.pipeline),
        expected_rows=expected_rows(connection, config.source.publication, copying),
    )


def read_log(log: KafkaLog, pipeline: PipelineName, wanted: Iterable[DestinationName]) -> LogState:
    """The small topics; empty where capture has not made them yet."""
    topics = Topics(pipeline)
    present = log.topics()
    if topics.checkpoints not in present:
        return LogState((), {})
    counting = accepted([each for _, each in checkpoints(log.last(topics.checkpoints, CHECKPOINTS))])
    newest, recent = _heard(log, pipeline, wanted, _RECENT)
    done = counting[-1].control if counting and topics.control in present else 0
    awaited = {
        topics.copy(report.table, report.generation): report
        for feedback in newest.values()
        for report in feedback.tables
        if isinstance(report.phase, Init | DataSync)
    }
    records = {topic: ends[0] for topic, ends in log.ends(awaited.keys() & present).items()}
    copying = {topic for topic, count in records.items() if count and isinstance(awaited[topic].phase, Init)}
    return LogState(
        tuple(counting),
        newest,
        recent,
        switched_policy(log, topics.control, done),
        {topic: OnKafka(count, _began(log, topic) if topic in copying else None) for topic, count in records.items()},
        frozenset(awaited[topic].table for topic in copying),
    )


def _began(log: KafkaLog, topic: str) -> int | None:
    """When its first record was written."""
    return next((record.timestamp * 1000 for record in log.read(topic, 0, 1)), None)


def accepted(written: Sequence[Checkpoint]) -> list[Checkpoint]:
    """The checkpoints by the epoch rule: after an opening, those of other epochs are a zombie's."""
    rule = EpochRule()
    return [checkpoint for checkpoint in written if rule.accepts(checkpoint)]


def read_feedback(
    log: KafkaLog, pipeline: PipelineName, wanted: Iterable[DestinationName]
) -> dict[DestinationName, Feedback]:
    """The newest feedback of each destination: read from the end backwards, until all that are wanted have shown up."""
    return _heard(log, pipeline, wanted, _NEWEST)[0]


def _heard(
    log: KafkaLog, pipeline: PipelineName, wanted: Iterable[DestinationName], step: int
) -> tuple[dict[DestinationName, Feedback], tuple[Feedback, ...]]:
    """The newest feedback of each destination, and the last `step` of all; nothing where capture has not made the topic
    yet."""
    topic = Topics(pipeline).feedback
    missing = set(wanted)
    found: dict[DestinationName, Feedback] = {}
    recent: tuple[Feedback, ...] = ()
    try:
        begin, end = log.begins([topic])[topic][0], log.ends([topic])[topic][0]
    except TopicMissing:
        return {}, ()
    while begin < end and (missing or not found):
        start = max(begin, end - step)
        read = list(feedbacks(log.read(topic, start, end)))
        recent = recent or tuple(read)
        found = {feedback.destination: feedback for feedback in read} | found
        missing -= found.keys()
        end, step = start, step * 4
    return found, recent


def _lsn(text: str | None) -> Lsn | None:
    return Lsn.parse(text) if text is not None else None
