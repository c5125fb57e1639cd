"""One interval of some tables, from Kafka to folded changes: of all tables at once, or of one that catches up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from apply_spark.decode import decoded, within
from apply_spark.destination import TableChanges
from apply_spark.errors import RowsMissing, TableFailed, TopicCut
from apply_spark.fold import Contents, contents_columns, fold
from apply_spark.intervals import Interval
from apply_spark.progress import TableProgress
from apply_spark.read import OffsetRange, read_ranges
from schemas.checkpoint import Moved
from schemas.connections import KafkaConfig
from schemas.lsn import Lsn, Position
from schemas.topics import Topics
from stores.kafka_log import KafkaLog
from stores.schema_topic import SchemaTopic


@dataclass(frozen=True)
class _Part:
    """The records of one schema on one table's topic, within the window."""

    table: TableProgress
    moved: Moved
    rows: DataFrame


class IntervalReader:
    """Reads what moved, once, counts it against the checkpoint, and folds it."""

    def __init__(
        self, spark: SparkSession, kafka: KafkaConfig, topics: Topics, log: KafkaLog, schemas: SchemaTopic
    ) -> None:
        self._spark = spark
        self._kafka = kafka
        self._topics = topics
        self._log = log
        self._schemas = schemas

    @contextmanager
    def changes(self, interval: Interval, tables: Iterable[TableProgress]) -> Iterator[tuple[TableChanges, ...]]:
        """The changes of those tables that have any and do not hold them yet. TableFailed: a table lost rows."""
        moving = [t for t in tables if t.lsn < interval.lsn and interval.moved_on(self._topics.changes(t.table))]
        if not moving:
            yield ()
            return
        ranges = {
            topic: OffsetRange(table.topic_offset, interval.ends[topic])
            for table in moving
            for topic in [self._topics.changes(table.table)]
        }
        try:
            raw = read_ranges(self._spark, self._kafka, self._log, ranges).persist(StorageLevel.MEMORY_AND_DISK)
        except TopicCut as cut:
            owner = next(table for table in moving if self._topics.changes(table.table) == cut.topic)
            raise TableFailed(owner.table, cut) from cut
        try:
            parts = [part for table in moving for part in self._parts(raw, interval, table)]
            contents = _measure(parts)
            yield tuple(self._folded(table, interval, parts, contents) for table in moving)
        finally:
            raw.unpersist()

    def _parts(self, raw: DataFrame, interval: Interval, table: TableProgress) -> Iterator[_Part]:
        topic = self._topics.changes(table.table)
        for moved in interval.moved_on(topic):
            rows = within(decoded(raw, topic, self._schemas.get(moved.schema_id)), interval)
            yield _Part(table, moved, rows)

    def _folded(
        self, table: TableProgress, interval: Interval, parts: list[_Part], contents: list[Contents]
    ) -> TableChanges:
        schema = self._schemas.get(table.schema_id).table
        assert schema is not None  # noqa: S101 -- a value schema is registered with its table
        kept: list[DataFrame] = []
        for part, found in zip(parts, contents, strict=True):
            if part.table is table:
                kept.append(_complete(part, found))
        rows = reduce(DataFrame.unionByName, kept)
        if table.lsn > interval.start:
            rows = rows.where(F.col("commit_lsn") >= F.lit(int(table.lsn)))
        mine = [found for part, found in zip(parts, contents, strict=True) if part.table is table]
        total = Contents(
            rows=sum(found.rows for found in mine),
            partial=sum(found.partial for found in mine),
            takes_away=sum(found.takes_away for found in mine),
            moves=sum(found.moves for found in mine),
            truncated_at=_newest_truncate(mine, table.lsn),
        )
        return TableChanges(schema, total.truncated_at is not None, fold(rows, schema, total), total.partial > 0)


def _measure(parts: list[_Part]) -> list[Contents]:
    """What every part is like, in one job."""
    measured = [part.rows.agg(F.lit(index).alias("part"), *contents_columns()) for index, part in enumerate(parts)]
    found = sorted(reduce(DataFrame.unionAll, measured).collect())
    return [
        Contents(
            rows=row["rows"],
            partial=row["partial"],
            takes_away=row["takes_away"],
            moves=row["moves"],
            truncated_at=Position(Lsn(row["truncated_at"][0]), row["truncated_at"][1]) if row["truncated_at"] else None,
        )
        for row in found
    ]


def _complete(part: _Part, found: Contents) -> DataFrame:
    """The part's rows, each position once; a position that was counted and is not there stops the table."""
    rows, expected = part.rows, part.moved.rows
    if found.rows == expected:
        return rows
    once = rows.dropDuplicates(["commit_lsn", "ordinal"])
    there = once.count() if found.rows > expected else found.rows
    if there == expected:
        return once
    raise TableFailed(
        part.table.table,
        RowsMissing(f"Topic {part.moved.topic} has {there} rows where the checkpoint counted {expected}."),
    )


def _newest_truncate(contents: list[Contents], since: Lsn) -> Position | None:
    """The last truncate that the table does not hold yet."""
    found = [c.truncated_at for c in contents if c.truncated_at is not None and c.truncated_at.commit_lsn >= since]
    return max(found, default=None)
