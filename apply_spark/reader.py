"""One interval of some tables, from Kafka to folded changes: of all tables at once, or of one that catches up.

An interval within the budget comes to this process as raw records, those of all tables in one read; here it is decoded,
counted against the checkpoint and, where every row was sent whole, folded.
Spark folds the rest, and decodes and folds an interval that is larger: one checkpoint, which cannot be divided.

Where more intervals wait, the next one is read while this one is written: its raw records, so that of two intervals
one is in memory as it came. What was read ahead counts only if just those ranges are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import pyarrow as pa
import structlog
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from apply_spark.arrow_decode import ArrowDecoder, RawRecords, is_chosen
from apply_spark.decode import SPARK_FAILED, decoded, heads, require_damaged, within
from apply_spark.decode import without as without_in_spark
from apply_spark.destination import TableChanges
from apply_spark.errors import RecordDamaged, RowsMissing, TableFailed, TopicCut
from apply_spark.fold import Contents, contents_columns
from apply_spark.intervals import Budget, Interval
from apply_spark.kept import kept_changes
from apply_spark.progress import TableProgress
from apply_spark.range_reader import ReadingThread
from apply_spark.read import OffsetRange, checked, raw_records
from apply_spark.records import before, contents, each_once, records, since, without
from apply_spark.records import within as records_within
from apply_spark.reshape import Shapes
from apply_spark.rows import ArrowRows, SparkRows
from apply_spark.showing import EVERYTHING, Showing
from schemas.checkpoint import Moved
from schemas.connections import KafkaConfig
from schemas.envelope import reader_schema
from schemas.errors import LogError
from schemas.identifiers import SchemaId
from schemas.lsn import Lsn, Position
from schemas.table import TableSchema
from schemas.topics import Topics
from schemas.wire import HEADER_BYTES, NotOurRecord, schema_id_of
from stores.kafka_errors import BrokerUnreachable, TopicMissing
from stores.kafka_log import KafkaLog
from stores.schema_topic import RegisteredSchema, SchemaTopic, UnknownSchema

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Part:
    """The records of one schema on one table's topic."""

    table: TableProgress
    moved: Moved


class _Ahead(NamedTuple):
    """Records that are being read, or were."""

    ranges: dict[str, OffsetRange]
    raw: Future[dict[str, RawRecords]]


class IntervalReader:
    """Reads what moved, once, counts it against the checkpoint, and folds it."""

    def __init__(
        self,
        spark: SparkSession,
        kafka: KafkaConfig,
        topics: Topics,
        log: KafkaLog,
        schemas: SchemaTopic,
        thread: ReadingThread,
        budget: Budget,
        showing: Showing = EVERYTHING,
    ) -> None:
        self._spark = spark
        self._kafka = kafka
        self._topics = topics
        self._log = log
        self._schemas = schemas
        self._thread = thread
        self._budget = budget
        self._showing = showing
        self._decoder = ArrowDecoder(kafka, reader_schema)
        self._ahead: _Ahead | None = None

    @contextmanager
    def changes(self, interval: Interval, tables: Iterable[TableProgress]) -> Iterator[tuple[TableChanges, ...]]:
        """The changes of those tables that have any and do not hold them yet. TableFailed: a table lost rows."""
        parts = self._parts(interval, tables)
        if not parts:
            yield ()
            return
        ranges = self._ranges(interval, parts)
        if is_chosen() and self._is_within_budget(interval, ranges):
            yield tuple(self._changes_here(interval, parts, ranges))
            return
        raw = raw_records(self._spark, self._kafka, ranges).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            yield tuple(self._changes_in_spark(interval, parts, ranges, raw))
        finally:
            raw.unpersist()

    def read_ahead(self, interval: Interval | None, tables: Iterable[TableProgress]) -> None:
        """Begins to read what `changes` will be asked for next, unless that is nothing, or too much. Whatever is wrong
        with it, a broker that is away included, is told when it is asked for."""
        self._ahead = None
        if interval is None or not is_chosen() or not (parts := self._parts(interval, tables)):
            return
        with suppress(TableFailed, LogError):
            ranges = self._ranges(interval, parts)
            if self._is_within_budget(interval, ranges):
                self._ahead = self._begun(ranges)

    def _begun(self, ranges: dict[str, OffsetRange]) -> _Ahead:
        return _Ahead(ranges, self._thread.submit(lambda reader: reader.read(ranges)))

    def _parts(self, interval: Interval, tables: Iterable[TableProgress]) -> list[_Part]:
        return [
            _Part(table, moved)
            for table in tables
            if table.lsn < interval.lsn
            for moved in interval.moved_on(self._topics.changes(table.table))
        ]

    def _ranges(self, interval: Interval, parts: list[_Part]) -> dict[str, OffsetRange]:
        owners = _owners(parts)
        wanted = {topic: OffsetRange(table.topic_offset, interval.ends[topic]) for topic, table in owners.items()}
        try:
            return checked(self._log, wanted)
        except TopicCut as cut:
            raise TableFailed(owners[cut.topic].table, cut) from cut

    def _is_within_budget(self, interval: Interval, ranges: dict[str, OffsetRange]) -> bool:
        """Offsets bound what can come: records of a zombie, which no checkpoint counts, may stand between."""
        most = sum(range_.end - range_.start for range_ in ranges.values())
        return interval.bytes <= self._budget.bytes and most <= 2 * self._budget.rows

    def shapes(self, interval: Interval, table: TableProgress) -> Shapes:
        """Those that the table has in the interval."""
        ahead = table.shapes_before(interval.lsn)
        ids = [table.schema_id, *[shape.schema_id for shape in ahead]]
        is_kept = table.mirrored is not None and {table.mirrored} != set(ids)
        return Shapes(
            tuple(self._shape(table, each) for each in ids),
            tuple(shape.position for shape in ahead),
            self._shape(table, table.mirrored) if table.mirrored is not None and is_kept else None,
        )

    def _schema(self, table: TableProgress, schema_id: SchemaId) -> RegisteredSchema:
        try:
            return self._schemas.get(schema_id)
        except UnknownSchema as error:
            raise TableFailed(table.table, error) from error

    def _shape(self, table: TableProgress, schema_id: SchemaId) -> TableSchema:
        schema = self._schema(table, schema_id).table
        assert schema is not None  # noqa: S101 -- a value schema is registered with its table
        return schema

    def _require_ours(self, table: TableProgress, topic: str, range_: OffsetRange, found: set[bytes | None]) -> None:
        """Capture writes nothing to the topic but records of the table, in a shape that it told of before. `found`:
        what the records begin with."""
        for head in found:
            if not self._is_head_of(table, head):
                records = self._log.read(topic, *range_)
                offset = next((each.offset for each in records if _head(each.value) == head), None)
                raise TableFailed(
                    table.table,
                    NotOurRecord(
                        f"Topic {topic} has a record at offset {offset} that penstock did not write.",
                        solution=f"{NotOurRecord.solution} Then run `penstock resync {table.table}`.",
                    ),
                )

    def _is_head_of(self, table: TableProgress, head: bytes | None) -> bool:
        try:
            shape = self._schemas.get(schema_id_of(head or b"")).table
        except (NotOurRecord, UnknownSchema):
            return False
        return shape is not None and shape.name == table.table

    # In this process.

    def _changes_here(
        self, interval: Interval, parts: list[_Part], ranges: dict[str, OffsetRange]
    ) -> Iterator[TableChanges]:
        whole = {part: _all_there(part, rows) for part, rows in self._records(interval, parts, ranges)}
        for table in dict.fromkeys(part.table for part in parts):
            shapes = self.shapes(interval, table)
            skipped = _skipped(table, interval)
            mine = [(part, before(rows, interval.lsn)) for part, rows in whole.items() if part.table is table]
            new = [(part, without(since(rows, table.lsn), skipped)) for part, rows in mine]
            new = [(part, rows) for part, rows in new if rows.num_rows]  # what the table holds may be of another shape
            if not new:
                continue
            shaped = [shapes.reshape(rows, self._shape(table, part.moved.schema_id)) for part, rows in new]
            rows = pa.concat_tables(shaped)
            yield kept_changes(self._showing, table, ArrowRows(self._spark, rows), shapes.last, contents(rows))

    def _records(
        self, interval: Interval, parts: list[_Part], ranges: dict[str, OffsetRange]
    ) -> Iterator[tuple[_Part, pa.Table]]:
        try:
            raw = self._raw(ranges)
        except TopicCut as cut:
            raise TableFailed(_owners(parts)[cut.topic].table, cut) from cut
        except (BrokerUnreachable, TopicMissing):
            self._ranges(interval, parts)  # TableFailed: a topic was deleted, or lost its tail, since it was checked
            raise
        passed_over = {topic: len(each) for topic, each in raw.items()}
        for part in parts:
            schema = self._schema(part.table, part.moved.schema_id)
            try:
                decoded = self._decoder.records(raw[part.moved.topic], schema)
            except RecordDamaged as error:
                raise TableFailed(part.table.table, error) from error
            passed_over[part.moved.topic] -= len(decoded)
            yield part, records_within(records(decoded), interval)
        for topic, table in _owners(parts).items():
            if passed_over[topic]:
                self._require_ours(table, topic, ranges[topic], raw[topic].heads())

    def _raw(self, ranges: dict[str, OffsetRange]) -> dict[str, RawRecords]:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead.ranges == ranges:
            with suppress(BrokerUnreachable):  # nobody asked for it then: it is read now
                return ahead.raw.result()
        return self._begun(ranges).raw.result()

    # In Spark.

    def _changes_in_spark(
        self, interval: Interval, parts: list[_Part], ranges: dict[str, OffsetRange], raw: DataFrame
    ) -> Iterator[TableChanges]:
        found_heads = heads(raw)
        for topic, table in _owners(parts).items():
            self._require_ours(table, topic, ranges[topic], found_heads.get(topic, set()))
        frames = [
            within(decoded(raw, part.moved.topic, self._schema(part.table, part.moved.schema_id)), interval)
            for part in parts
        ]
        measured = list(zip(parts, frames, _measured(parts, frames), strict=True))
        for table in dict.fromkeys(part.table for part in parts):
            mine = [
                (part, _since(_complete(part, frame, found), table, interval), found)
                for part, frame, found in measured
                if part.table is table
            ]
            skipped = _skipped(table, interval)
            if skipped or interval.counted:  # what is left is not what was counted
                left = [without_in_spark(frame, skipped) for _, frame, _ in mine]
                again = zip(mine, left, _measure(left), strict=True)
                mine = [(part, frame, found) for (part, _, _), frame, found in again]
            shapes = self.shapes(interval, table)
            new = [
                shaped
                for part, frame, _ in mine
                for shaped in shapes.reshape_in_spark(frame, self._shape(table, part.moved.schema_id))
            ]
            if not new:
                continue
            rows = reduce(DataFrame.unionByName, new)
            found = _together([contents for _, _, contents in mine], table.lsn)
            yield kept_changes(self._showing, table, SparkRows(rows), shapes.last, found)


def _owners(parts: list[_Part]) -> dict[str, TableProgress]:
    return {part.moved.topic: part.table for part in parts}


def _head(value: bytes | None) -> bytes | None:
    return None if value is None else value[:HEADER_BYTES]


def _skipped(table: TableProgress, interval: Interval) -> list[Position]:
    """What the table is told to pass over in the interval."""
    found = [position for position in table.skipped if interval.start <= position.commit_lsn < interval.lsn]
    for position in found:
        log.warning("change skipped", table=str(table.table), position=str(position))
    return found


def _all_there(part: _Part, rows: pa.Table) -> pa.Table:
    """Each position once; a position that was counted and is not there stops the table."""
    if rows.num_rows > part.moved.rows:
        rows = each_once(rows)
    if rows.num_rows != part.moved.rows:
        raise _missing(part, rows.num_rows)
    return rows


def _missing(part: _Part, there: int) -> TableFailed:
    reason = f"Topic {part.moved.topic} has {there} rows where the checkpoint counted {part.moved.rows}."
    return TableFailed(part.table.table, RowsMissing(reason))


def _measure(frames: list[DataFrame]) -> list[Contents]:
    """What every part is like, in one job."""
    measured = [rows.agg(F.lit(index).alias("part"), *contents_columns()) for index, rows in enumerate(frames)]
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


def _measured(parts: list[_Part], frames: list[DataFrame]) -> list[Contents]:
    """The same. A record that Spark cannot decode stops its table."""
    try:
        return _measure(frames)
    except SPARK_FAILED as error:
        require_damaged(error)
        for part, frame in zip(parts, frames, strict=True):
            try:
                _measure([frame])
            except SPARK_FAILED:
                damaged = RecordDamaged(f"Topic {part.moved.topic} has a damaged record: Spark cannot decode it.")
                raise TableFailed(part.table.table, damaged) from None
        raise


def _complete(part: _Part, rows: DataFrame, found: Contents) -> DataFrame:
    """As `_all_there`, in Spark."""
    if found.rows == part.moved.rows:
        return rows
    once = rows.dropDuplicates(["commit_lsn", "ordinal"])
    there = once.count() if found.rows > part.moved.rows else found.rows
    if there == part.moved.rows:
        return once
    raise _missing(part, there)


def _since(rows: DataFrame, table: TableProgress, interval: Interval) -> DataFrame:
    """What the table does not hold yet, and of a cut interval only what lies before the cut."""
    rows = rows.where(F.col("commit_lsn") < F.lit(int(interval.lsn))) if interval.counted else rows
    return rows.where(F.col("commit_lsn") >= F.lit(int(table.lsn))) if table.lsn > interval.start else rows


def _together(contents: list[Contents], held: Lsn) -> Contents:
    """Of all parts of a table; the last truncate that the table does not hold yet."""
    truncates = [c.truncated_at for c in contents if c.truncated_at is not None and c.truncated_at.commit_lsn >= held]
    return Contents(
        rows=sum(found.rows for found in contents),
        partial=sum(found.partial for found in contents),
        takes_away=sum(found.takes_away for found in contents),
        moves=sum(found.moves for found in contents),
        truncated_at=max(truncates, default=None),
    )
