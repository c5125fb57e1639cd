"""How the copy of a table begins under a snapshot: where it was interrupted, or as the next generation."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from capture.checkpoints import LogPlace
from capture.config import CaptureConfig, CopyMode
from capture.publication import PublishedTable
from capture.registrar import Registrar
from capture.table_sync.copier import TableJob
from capture.table_sync.copies import Round, TableCopying
from capture.table_sync.membership import why_copy
from capture.table_sync.memory import CopyMemory
from capture.table_sync.ranges import CopyRange, divide
from capture.table_sync.resume import Interrupted, remembered, why_begin_again, why_lost
from schemas.checkpoint import CopyStarted
from schemas.failpoints import failpoint
from schemas.identifiers import LogId
from schemas.patterns import matching
from schemas.topics import Topics
from stores.errors import StoreUnreachable
from stores.kafka_errors import BrokerUnreachable, TopicExists
from stores.kafka_log import KafkaLog
from stores.state import TableCopy

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Beginnings:
    """Makes and remembers copies; whoever asks for them has them done."""

    config: CaptureConfig
    log_id: LogId
    log: KafkaLog
    registrar: Registrar
    memory: CopyMemory

    @property
    def _topics(self) -> Topics:
        return Topics(self.config.pipeline)

    def ranges(self, table: PublishedTable) -> list[CopyRange]:
        """None of a table that is not to be copied: its generation is empty, and all else is as with any other."""
        copies = self.config.copies
        if copies.mode is CopyMode.STREAM_ONLY or not matching([table.name], copies.tables):
            return []
        return divide(table, self.config.tuning.copy_ranges_per_table, self.config.tuning.copy_range_size)

    def why_not_resumed(self, table: PublishedTable, left: Interrupted) -> str | None:
        schema_id, _ = self.registrar.schema_ids(table.schema)
        why = why_begin_again(table, schema_id, left, self.config.source.origin)
        return why or why_lost(self.log, self._topics, left)

    def resumed(self, table: PublishedTable, this_round: Round) -> TableCopying | None:
        """The copy where it was interrupted, on the same topic; None if there is none, or if it cannot go on."""
        left, held = self.memory.interrupted(table.name), this_round.snapshot
        if left is None or held.lsn <= left.last or why_copy(table, left.copy, self.log_id) is not None:
            return None
        if self.why_not_resumed(table, left) is not None:
            return None
        generation = left.copy.generation
        topic = self._topics.copy(table.name, generation)
        ranges, done = left.divided(table)
        log.info(
            "table copy resumed",
            table=str(table.name),
            generation=str(generation),
            snapshot_lsn=str(held.lsn),
            ranges=len(ranges),
            finished_ranges=len(done),
        )
        return TableCopying(
            TableJob(table, self.registrar.schema_ids(table.schema), held.id, held.lsn, generation, topic),
            this_round,
            ranges,
            done=done,
            earlier_rows=sum(each.rows for each in done.values()),
            topic_from=sum(self.log.ends([topic])[topic]),
        )

    def begun(
        self, table: PublishedTable, this_round: Round, place: LogPlace
    ) -> tuple[TableCopying, CopyStarted] | None:
        """The next generation, whose changes begin at `place`; None if its topic is already there."""
        ids, generation = self.registrar.schema_ids(table.schema), this_round.snapshot.lsn
        failpoint("copy.beginning", BrokerUnreachable)
        try:
            topic = self.registrar.new_copy_topic(table.name, generation)
        except TopicExists:
            return None
        failpoint("copy.topic_made", BrokerUnreachable)
        started = CopyStarted(
            table=table.name,
            schema_id=ids[0],
            generation=generation,
            filenode=table.filenode,
            fingerprint=table.fingerprint,
            changes_from=place.ends.get(self._topics.changes(table.name), (0,))[0],
            log_from=place.next_offset,
        )
        copy = TableCopy(
            table=table.name,
            log_id=self.log_id,
            generation=generation,
            schema_id=ids[0],
            filenode=table.filenode,
            fingerprint=table.fingerprint,
            finished=False,
            rows=0,
            log_from=started.log_from,
            changes_from=started.changes_from,
        )
        ranges = self.ranges(table)
        self.memory.begin(copy, remembered(table.name, generation, ranges))
        failpoint("copy.begun", StoreUnreachable)
        log.info("table copy started", table=str(table.name), generation=str(generation), ranges=len(ranges))
        job = TableJob(table, ids, this_round.snapshot.id, generation, generation, topic)
        return TableCopying(job, this_round, ranges), started
