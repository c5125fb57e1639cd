"""Copied rows from their topic to Arrow, piece by piece: while one piece is written, the next is read.

Changes of other tables wait while a piece is written. So a piece is as large as what takes a second, by the last ones.

A copy that was interrupted and resumed has some keys more than once, in a piece and in different ones. Its rows are
written as upserts. Which image of a key is written does not matter: images differ only where the row was changed after
the first snapshot, and all changes since then are applied, whole, before the table is Ready.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from apply_spark.arrow_decode import ArrowDecoder, is_chosen
from apply_spark.decode import SPARK_FAILED, decoded_copy, require_damaged
from apply_spark.destination import TableChanges
from apply_spark.errors import RecordDamaged, TableFailed, TopicCut
from apply_spark.fold import only_rows
from apply_spark.kept import mirrored
from apply_spark.progress import TableProgress
from apply_spark.range_reader import RangeReader, ReadingThread
from apply_spark.read import OffsetRange, checked, raw_records
from apply_spark.rows import ArrowRows
from schemas.connections import KafkaConfig
from schemas.envelope import Op, copy_reader_schema
from schemas.errors import LogError
from schemas.table import TableSchema
from schemas.topics import Topics
from stores.kafka_errors import BrokerUnreachable, TopicMissing
from stores.kafka_log import KafkaLog
from stores.schema_topic import SchemaTopic, UnknownSchema


def upserts(spark: SparkSession, rows: pa.Table, schema: TableSchema) -> TableChanges:
    """Copied rows, with the one column `row`, as changes: every key once."""
    count = rows.num_rows
    images = pa.table(
        {
            "commit_lsn": pa.array(np.zeros(count, dtype=np.int64)),
            "ordinal": pa.array(np.arange(count)),
            "op": pa.repeat(Op.READ.value, count),
            "before": pa.nulls(count, rows.schema.field("row").type),
            "after": rows["row"],
        }
    )
    return mirrored(ArrowRows(spark, images), schema, only_rows(count))


class Pace:
    """How many rows the next piece has."""

    _SECONDS = 1.0
    _FIRST = 25_000
    """A new JVM takes its time for the first rows."""
    _LEAST = 1_000

    def __init__(self) -> None:
        self.rows = self._FIRST
        self._last: tuple[int, float] | None = None
        self._fixed = 0.0
        """Seconds that a piece takes whatever its size, as a commit of Delta does: smaller pieces are no quicker."""

    def took(self, rows: int, seconds: float) -> None:
        """Follows what a piece took, by at most a factor of two: one slow moment is not the rule. Half of the time at
        least goes into rows. A piece that was smaller than it might have been does not say that larger ones are fast.
        """
        if self._last is not None and self._last[0] != rows:
            each = (seconds - self._last[1]) / (rows - self._last[0])
            self._fixed = min(seconds, max(0.0, seconds - each * rows))
        self._last = rows, seconds
        wanted = max(self._SECONDS, 2 * self._fixed) - self._fixed
        fitting = round(rows * wanted / max(seconds - self._fixed, 1e-3))
        if fitting < rows:
            self.rows = max(self._LEAST, rows // 2, fitting)
        elif rows >= self.rows:
            self.rows = min(rows * 2, fitting)


class _Ahead(NamedTuple):
    """A piece that is being read, or was."""

    topic: str
    piece: OffsetRange
    rows: Future[pa.Table]


class CopyReader:
    """Reads the copy topics of a pipeline. At most two pieces are in memory."""

    def __init__(
        self,
        spark: SparkSession,
        kafka: KafkaConfig,
        topics: Topics,
        log: KafkaLog,
        schemas: SchemaTopic,
        thread: ReadingThread,
    ) -> None:
        self._spark = spark
        self._kafka = kafka
        self._topics = topics
        self._log = log
        self._schemas = schemas
        self._thread = thread
        self._ahead: _Ahead | None = None
        self._pace = Pace()
        self._decoder = ArrowDecoder(kafka, copy_reader_schema)

    @contextmanager
    def piece(self, table: TableProgress, most: int) -> Iterator[tuple[pa.Table, int]]:
        """The next rows of a table's copy, with the one column `row`, and the offset that they reach; written inside
        the block. No piece has more than `most` rows."""
        began = time.monotonic()
        topic = self._topics.copy(table.table, table.generation)
        piece, rows = self._read(table, topic, most)
        if piece.end != table.copy_end:
            with suppress(TableFailed, LogError):  # what is wrong with the next piece is told when that is asked for
                self._ahead = self._begun(table, topic, piece.end, most)
        yield rows, piece.end
        self._pace.took(piece.end - piece.start, time.monotonic() - began)

    def _read(self, table: TableProgress, topic: str, most: int) -> tuple[OffsetRange, pa.Table]:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and (ahead.topic, ahead.piece.start) == (topic, table.copy_offset):
            with suppress(BrokerUnreachable):  # nobody asked for it then: it is read now
                return ahead.piece, ahead.rows.result()
        asked = self._begun(table, topic, table.copy_offset, most)
        try:
            return asked.piece, asked.rows.result()
        except (BrokerUnreachable, TopicMissing):
            self._checked(table, topic, asked.piece)
            raise

    def _checked(self, table: TableProgress, topic: str, piece: OffsetRange) -> dict[str, OffsetRange]:
        try:
            return checked(self._log, {topic: piece})
        except TopicCut as cut:
            raise TableFailed(table.table, cut) from cut

    def _begun(self, table: TableProgress, topic: str, start: int, most: int) -> _Ahead:
        assert table.copy_end is not None  # noqa: S101 -- or there would be nothing to read
        piece = OffsetRange(start, min(table.copy_end, start + min(most, self._pace.rows)))
        ranges = self._checked(table, topic, piece)
        try:
            schema = self._schemas.get(table.schema_id)
        except UnknownSchema as error:
            raise TableFailed(table.table, error) from error

        def read_in_spark() -> pa.Table:
            try:
                return decoded_copy(raw_records(self._spark, self._kafka, ranges), topic, schema).toArrow()
            except SPARK_FAILED as error:
                require_damaged(error)
                damaged = RecordDamaged(f"Topic {topic} has a damaged record: Spark cannot decode it.")
                raise TableFailed(table.table, damaged) from None

        def read(reader: RangeReader) -> pa.Table:
            if not is_chosen():
                return read_in_spark()
            try:
                raw = reader.read(ranges)[topic]
                return pa.table({"row": pc.struct_field(self._decoder.records(raw, schema), "after")})
            except (RecordDamaged, TopicCut) as error:
                raise TableFailed(table.table, error) from error

        return _Ahead(topic, piece, self._thread.submit(read))
