"""Raw records to typed rows by schema id, in Spark, and the part of them that belongs to a window.

`from_avro` cannot know that a schema is wrong: the header is compared and cut off first, and the writer's schema is
the one of its id. What is read is `schemas.envelope.reader_schema`: plain numbers and text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention
from pyspark.sql.avro.functions import from_avro

from apply_spark.intervals import Interval
from schemas.envelope import copy_reader_schema, moment_reader_schema, reader_schema
from schemas.lsn import Position
from schemas.wire import HEADER_BYTES, header
from stores.schema_topic import RegisteredSchema

SPARK_FAILED = (Py4JJavaError, PySparkException)
"""What a job ends with that met a record which it cannot decode, or anything else."""


def decoded(raw: DataFrame, topic: str, schema: RegisteredSchema) -> DataFrame:
    """The records of one schema on one topic: commit_lsn, ordinal, epoch, ts_us, op, before, after, unchanged."""
    return (
        raw.where(_is_of(topic, schema))
        .select(_avro(schema, reader_schema(schema.avro)).alias("record"))
        .select("record.source.*", "record.op", "record.before", "record.after", "record.unchanged")
    )


def decoded_copy(raw: DataFrame, topic: str, schema: RegisteredSchema) -> DataFrame:
    """The rows of a copy topic: the one column `row`."""
    row = _avro(schema, copy_reader_schema(schema.avro))["after"]
    return raw.where(_is_of(topic, schema)).select(row.alias("row"))


def decoded_moments(raw: DataFrame, topic: str, schema: RegisteredSchema) -> DataFrame:
    """The records of one schema on one topic: commit_lsn, epoch, and ts_us, when they were committed."""
    return (
        raw.where(_is_of(topic, schema))
        .select(_avro(schema, moment_reader_schema(schema.avro)).alias("record"))
        .select("record.source.*")
    )


def heads(raw: DataFrame) -> dict[str, set[bytes | None]]:
    """What the records of each topic begin with, where the header is; None: a record without a value."""
    head = F.struct("topic", F.substring("value", 1, HEADER_BYTES).alias("head"))
    found: dict[str, set[bytes | None]] = {}
    for topic, value in raw.agg(F.collect_set(head)).collect()[0][0]:
        found.setdefault(topic, set()).add(None if value is None else bytes(value))
    return found


def within(rows: DataFrame, interval: Interval) -> DataFrame:
    """What the interval's epoch wrote for its window; a zombie's late queue is outside."""
    return rows.where(
        (F.col("epoch") == F.lit(int(interval.epoch)))
        & (F.col("commit_lsn") >= F.lit(int(interval.start)))
        & (F.col("commit_lsn") < F.lit(int(interval.window_end)))
    )


def without(rows: DataFrame, positions: Iterable[Position]) -> DataFrame:
    """All but the rows at these positions."""
    for lsn, ordinal in positions:
        rows = rows.where((F.col("commit_lsn") != F.lit(int(lsn))) | (F.col("ordinal") != F.lit(ordinal)))
    return rows


def require_damaged(error: Exception) -> None:
    """Raises the error again, unless it is about a record that is not what its schema says."""
    if "malformed" not in str(error).lower():
        raise error


def _is_of(topic: str, schema: RegisteredSchema) -> Column:
    return (F.col("topic") == topic) & (F.substring("value", 1, HEADER_BYTES) == F.lit(header(schema.id)))


def _avro(schema: RegisteredSchema, reader: dict[str, Any]) -> Column:
    body: Column = F.expr(f"substring(value, {HEADER_BYTES + 1})")
    return from_avro(body, json.dumps(schema.avro), {"avroSchema": json.dumps(reader), "mode": "FAILFAST"})
