"""Rows on their way to a destination, where they are now: in Spark, or in this process as Arrow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession


class Rows(Protocol):
    """A destination takes what it writes: Spark's own frame, or Arrow in this process."""

    def frame(self) -> DataFrame: ...

    def arrow(self) -> pa.Table: ...


@dataclass(frozen=True)
class SparkRows:
    """Not computed yet."""

    rows: DataFrame

    def frame(self) -> DataFrame:
        return self.rows

    def arrow(self) -> pa.Table:
        return self.rows.toArrow()


@dataclass(frozen=True)
class ArrowRows:
    """Here already: they were few enough."""

    spark: SparkSession
    rows: pa.Table

    def frame(self) -> DataFrame:
        return self.spark.createDataFrame(self.rows)

    def arrow(self) -> pa.Table:
        return self.rows
