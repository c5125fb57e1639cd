"""A copy that was interrupted: whether it may go on under a new snapshot, and with which ranges.

Its finished ranges show an earlier moment than those to come, so the changes since the first snapshot are applied over
all of them. A row without a change since then stands in the block in which it stood: a range has it, read whenever. A
row with one becomes what its last change says, whatever the copy holds of it, and however often. Both need a key, and
changes that are all told, and told whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from capture.config import Origins
from capture.publication import PublishedTable, TableFile
from capture.table_sync.copier import Copied
from capture.table_sync.copies import Whole
from capture.table_sync.membership import publishes_all
from capture.table_sync.ranges import CopyRange
from schemas.identifiers import SchemaId, TableName
from schemas.lsn import Lsn
from schemas.table import ReplicaIdentity
from schemas.topics import Topics
from stores.kafka_errors import TopicMissing
from stores.kafka_log import KafkaLog
from stores.state import FinishedRange, RangeOfCopy, TableCopy


@dataclass(frozen=True)
class Interrupted:
    """A copy that did not come to its end, as it is remembered."""

    copy: TableCopy
    ranges: tuple[RangeOfCopy, ...]
    announced: bool
    """Whether its CopyStarted stands in a checkpoint."""

    @property
    def finished(self) -> list[FinishedRange]:
        return [part.finished for part in self.ranges if part.finished is not None]

    @property
    def last(self) -> Lsn:
        """The newest snapshot under which a range was finished."""
        return max((each.snapshot for each in self.finished), default=self.copy.generation)

    def whole(self, topics: Topics) -> Whole:
        """Once all of its ranges are finished."""
        done, copy = self.finished, self.copy
        rows, size = sum(each.rows for each in done), sum(each.bytes for each in done)
        topic = topics.copy(copy.table, copy.generation)
        fewest = max(rows, *(each.topic_end for each in done))
        return Whole(copy.table, copy.generation, self.last, topic, rows, size, fewest)

    def divided(self, table: PublishedTable) -> tuple[list[CopyRange], dict[CopyRange, Copied]]:
        """The ranges that are left, and those that are done."""
        files: dict[int, TableFile] = {file.id: file for file in table.files}
        left: list[CopyRange] = []
        done: dict[CopyRange, Copied] = {}
        for part in self.ranges:
            where = CopyRange(part.index, files[part.file] if part.file is not None else None, part.first, part.end)
            if part.finished is None:
                left.append(where)
            else:
                done[where] = Copied(part.finished.rows, part.finished.bytes, final=True)
        return left, done


def remembered(table: TableName, generation: Lsn, ranges: Sequence[CopyRange]) -> list[RangeOfCopy]:
    """The ranges as the store keeps them, none of them finished."""
    return [
        RangeOfCopy(table, generation, part.index, part.file.id if part.file else None, part.first, part.end)
        for part in ranges
    ]


def why_begin_again(
    table: PublishedTable, schema_id: SchemaId, left: Interrupted, origin: Origins = Origins.ANY
) -> str | None:
    """Why the copy cannot go on, and the next generation begins; None if it can, as far as the source is concerned."""
    told_whole = not table.toastable or table.schema.identity is ReplicaIdentity.FULL
    files = {file.id for file in table.files}
    reasons = (
        (not left.finished, "no range of it was finished"),
        (not left.announced, "it ended before its first checkpoint"),
        (not table.schema.key, "the table has no key"),
        (not publishes_all(table), "the publication withholds some of its changes"),
        (origin is not Origins.ANY, "the stream leaves out changes that came from elsewhere"),
        (not told_whole, "updates may leave out TOASTed values; replica identity full would send them"),
        (schema_id != left.copy.schema_id, "the table has another shape"),
        (table.filenode != left.copy.filenode, "the table was truncated or rewritten, or has other partitions"),
        (not all(file.divisible for file in table.files), "not all of its files have blocks that stay where they are"),
        (not {part.file for part in left.ranges} <= files, "it was not read file by file"),
    )
    return next((reason for found, reason in reasons if found), None)


def why_lost(log: KafkaLog, topics: Topics, left: Interrupted) -> str | None:
    """Why Kafka has no longer what the copy would go on with; None if it has."""
    copy = left.copy
    topic = topics.copy(copy.table, copy.generation)
    needed = {topic: 0, topics.changes(copy.table): copy.changes_from, topics.checkpoints: copy.log_from}
    try:
        begins, ends = log.begins(needed), log.ends([topic])
    except TopicMissing:
        return "a topic of it was deleted"
    if any(begins[each][0] > offset for each, offset in needed.items()):
        return "retention has taken a part of it, or of the changes since"
    if ends[topic][0] < max((each.topic_end for each in left.finished), default=0):
        return "Kafka has lost rows of it"
    return None
