"""What a replay could still be filled with, in one look: feedback and offsets in, a moment or a reason a table out.

Destinations tell the newest copy of each table; here is looked whether all of it is left: the log since, the copy's
records, the changes since. `penstock replay` itself reads the whole log, which takes too long for a look; it also finds
older copies, where a moment before the newest is wanted.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import fastavro

from apply_spark.replay_target import moment_text
from schemas.checkpoint import Checkpoint
from schemas.connections import KafkaConfig
from schemas.envelope import moment_reader_schema
from schemas.feedback import Feedback, TableReport
from schemas.identifiers import PipelineName, TableName
from schemas.lsn import NOWHERE, Lsn
from schemas.phases import Init
from schemas.topics import Topics
from schemas.wire import HEADER_BYTES, schema_id_of
from stores.kafka_log import KafkaLog
from stores.schema_topic import SchemaTopic


@dataclass(frozen=True)
class Replayable:
    """One table: a replay can have it as of any LSN from `since` on; with a `reason`, of none."""

    since: Lsn
    copied_at: int | None = None
    """When its copy began to be written, in microseconds since 1970; None where that is not known."""
    reason: str | None = None


def read_replayable(
    log: KafkaLog, kafka: KafkaConfig, pipeline: PipelineName, last: Checkpoint | None, told: Iterable[Feedback]
) -> dict[TableName, Replayable]:
    """Every table that a destination of this log has told of."""
    if last is None:
        return {}
    look = _Look(log, kafka, Topics(pipeline), last)
    newest: dict[TableName, TableReport] = {}
    for report in (report for feedback in told if feedback.log_id == last.log_id for report in feedback.tables):
        known = newest.get(report.table)
        if known is None or (report.generation, _is_begun(report)) > (known.generation, _is_begun(known)):
            newest[report.table] = report
    return {table: look.at(report) for table, report in sorted(newest.items())}


def _is_begun(report: TableReport) -> bool:
    return not isinstance(report.phase, Init)


class _Look:
    def __init__(self, log: KafkaLog, kafka: KafkaConfig, topics: Topics, last: Checkpoint) -> None:
        self._log = log
        self._topics = topics
        self._present = log.topics()
        self._schemas = SchemaTopic(kafka, log, topics.schemas)
        self._first = self._oldest(topics.checkpoints)
        self._log_id = last.log_id

    def at(self, report: TableReport) -> Replayable:
        since, copied = report.generation, self._topics.copy(report.table, report.generation)
        if since == NOWHERE:
            return Replayable(since, reason="no copy of it is on the topics")
        if not _is_begun(report):
            return Replayable(since, reason="its copy is under way")
        if self._first is not None:
            first = Checkpoint.decode(self._first)
            if first.log_id == self._log_id and first.start > since:
                return Replayable(since, reason=f"the log since its copy is gone: it begins at {first.start}")
        if report.rows_copied and (copied not in self._present or self._begin(copied) > 0):
            return Replayable(since, reason="records of its copy are gone")
        if not self._has_changes_since(self._topics.changes(report.table), since):
            return Replayable(since, reason="changes since its copy are gone")
        return Replayable(since, self._began(copied) if report.rows_copied else None)

    def _began(self, topic: str) -> int | None:
        return next((record.timestamp * 1000 for record in self._log.read(topic, 0, 1)), None)

    def _has_changes_since(self, topic: str, lsn: Lsn) -> bool:
        """Whether the oldest change that is left is older, or none was ever taken away."""
        if topic not in self._present:
            return False
        if self._begin(topic) == 0:
            return True
        oldest = self._oldest(topic)
        if oldest is None:  # all are older than the copy, of which records are left
            return True
        schema = self._schemas.get(schema_id_of(oldest)).avro
        change: Any = fastavro.schemaless_reader(
            io.BytesIO(oldest[HEADER_BYTES:]), schema, moment_reader_schema(schema)
        )
        return int(change["source"]["commit_lsn"]) < lsn

    def _begin(self, topic: str) -> int:
        return self._log.begins([topic])[topic][0]

    def _oldest(self, topic: str) -> bytes | None:
        begin = self._begin(topic)
        return next((record.value for record in self._log.read(topic, begin, begin + 1)), None)


def replay_report(found: Mapping[TableName, Replayable]) -> dict[str, Any]:
    """For JSON: from where on a replay has every table that it can have, and each table."""
    able = [each for each in found.values() if each.reason is None]
    times = [each.copied_at for each in able if each.copied_at is not None]
    return {
        "from_lsn": str(max(each.since for each in able)) if able else None,
        "from_time": moment_text(max(times)) if times else None,
        "tables": {
            str(table): {
                "from_lsn": str(each.since) if each.reason is None else None,
                "from_time": moment_text(each.copied_at) if each.copied_at is not None else None,
                "reason": each.reason,
                "solution": f"penstock resync {table}" if each.reason is not None else None,
            }
            for table, each in found.items()
        },
    }
