"""What apply hands to a destination, from plain Python values: batches, copied rows, progress.

Rows are where apply has them: copies, and changes that were sent whole, in Arrow; what Spark folds, in Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812 -- Spark's own convention

from apply_spark.destination import Batch, Destination, TableChanges
from apply_spark.progress import Progress, TableProgress
from apply_spark.rows import ArrowRows, Rows, SparkRows
from destination_contract.frames import a_frame, in_arrow
from schemas.envelope import avro_name
from schemas.identifiers import Epoch, LogId, SchemaId
from schemas.lsn import Lsn
from schemas.pg_types.registry import column_type
from schemas.phases import Phase, Ready
from schemas.table import Column, TableSchema

_SPARK_TYPES: dict[str, T.DataType] = {
    "boolean": T.BooleanType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "string": T.StringType(),
    "bytes": T.BinaryType(),
}


class Event(NamedTuple):
    """One folded row of a table with a key."""

    deleted: bool
    key: tuple[Any, ...] | None
    row: tuple[Any, ...] | None
    missing: list[str]
    base: tuple[Any, ...] | None


def upsert(*row: Any, missing: Sequence[str] = (), base: tuple[Any, ...] | None = None) -> Event:  # noqa: ANN401
    return Event(deleted=False, key=None, row=row, missing=list(missing), base=base)


def gone(*key: Any) -> Event:  # noqa: ANN401 -- values of any type
    return Event(deleted=True, key=key, row=None, missing=[], base=None)


def changes(spark: SparkSession, schema: TableSchema, *events: Event, truncate: bool = False) -> TableChanges:
    """What the fold gives for a table with a key."""
    image, key = _struct(schema), _struct(schema, key=True)
    shape = T.StructType(
        [
            T.StructField("deleted", T.BooleanType(), nullable=False),
            T.StructField("key", key, nullable=False),
            T.StructField("row", image),
            T.StructField("missing", T.ArrayType(T.StringType()), nullable=False),
            T.StructField("base", key),
        ]
    )
    with_keys = [event._replace(key=event.key or _key(schema, event.row or ())) for event in events]
    if any(event.missing for event in events):
        return TableChanges(schema, truncate, SparkRows(a_frame(spark, with_keys, shape)), partial=True)
    whole = in_arrow(with_keys, shape).drop_columns(["missing", "base"])
    return TableChanges(schema, truncate, ArrowRows(spark, whole), partial=False)


def bag_changes(
    spark: SparkSession, schema: TableSchema, *nets: tuple[tuple[Any, ...], int], truncate: bool = False
) -> TableChanges:
    """What the fold gives for a table without a key."""
    shape = T.StructType([T.StructField("row", _struct(schema)), T.StructField("net", T.LongType())])
    return TableChanges(schema, truncate, SparkRows(a_frame(spark, nets, shape)), partial=False)


def copied(spark: SparkSession, schema: TableSchema, rows: Iterable[tuple[Any, ...]]) -> Rows:
    shape = T.StructType([T.StructField("row", _struct(schema))])
    return ArrowRows(spark, in_arrow(((row,) for row in rows), shape))


def fill(
    destination: Destination, spark: SparkSession, schema: TableSchema, *rows: tuple[Any, ...], others: int = 0
) -> None:
    """A table there, with these rows; `others` keeps apart the progress of several calls."""
    destination.drop_table_for_copy(schema, a_progress(others + 1, schema))
    if rows:
        destination.write_table_rows(schema, copied(spark, schema, rows), a_progress(others + 2, schema))


def a_batch(*tables: TableChanges, lsn: int = 100) -> Batch:
    return Batch(tables, a_progress(lsn, *(table.schema for table in tables)))


def a_progress(lsn: int, *schemas: TableSchema, phase: Phase = Ready()) -> Progress:  # noqa: B008 -- a constant
    tables = [
        TableProgress(
            table=schema.name,
            phase=phase,
            generation=Lsn(7),
            schema_id=SchemaId(2**31 - 1),
            lsn=Lsn(lsn),
            epoch=Epoch(3),
            log_offset=lsn + 1,
            topic_offset=2**40,
            last_snapshot=Lsn(8),
        )
        for schema in schemas
    ]
    return Progress(
        log_id=LogId("log"),
        lsn=Lsn(lsn),
        epoch=Epoch(3),
        log_offset=lsn + 1,
        commit_ts=1_700_000_000_000_000,
        tables={table.table: table for table in tables},
    )


def _struct(schema: TableSchema, *, key: bool = False) -> T.StructType:
    columns = schema.key if key else schema.columns
    return T.StructType([T.StructField(avro_name(c.name), _column_type(c)) for c in columns])


def _column_type(column: Column) -> T.DataType:
    """As Spark reads the union of a column: a struct for an array, which has two branches."""
    types = [_spark_type(branch) for branch in column_type(column).branches[1:]]
    if len(types) == 1:
        return types[0]
    return T.StructType([T.StructField(f"member{number}", each) for number, each in enumerate(types)])


def _spark_type(avro: Any) -> T.DataType:  # noqa: ANN401 -- an Avro schema
    match avro:
        case {"type": "array", "items": [_, item]}:
            return T.ArrayType(_spark_type(item))
        case {"type": inner}:
            return _SPARK_TYPES[inner]
        case _:
            return _SPARK_TYPES[avro]


def _key(schema: TableSchema, row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value for column, value in zip(schema.columns, row, strict=True) if column.key)
