"""A truncate after which rows stay: what it makes of the rows of a mirror, as rows of the same merge."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from apply_spark.destination import Ending
from apply_spark.destinations.spark_types import converted, quoted
from apply_spark.reshape import defaults, plain_default
from schemas.table import Column as SourceColumn
from schemas.table import TableSchema

_RECORD = "penstock_ending"


class Ended:
    """The rows of a mirror, under the names of its shape, after an ending."""

    def __init__(self, ending: Ending, mirror: DataFrame, shape: TableSchema) -> None:
        self._shape = shape
        self._is_current: Column = F.col(quoted(ending.current.name)) == F.lit(plain_default(ending.current))
        self._values = {column.name: converted(column, _RECORD) for column in ending.values}
        record = mirror.sparkSession.createDataFrame(defaults(ending.values)).withColumnRenamed("row", _RECORD)
        self._mirror = mirror.crossJoin(F.broadcast(record))

    def rows(self) -> DataFrame:
        """All of them."""
        return self._mirror.select(*[self._ended(column).alias(column.name) for column in self._shape.columns])

    def besides(self, staged: DataFrame) -> DataFrame:
        """Those that change, as a merge takes them, but for keys of which the batch itself says something."""
        current = self._mirror.where(self._is_current)
        columns = list(enumerate(self._shape.columns))
        keys = [f"c{place}" for place, column in columns if column.key]
        after = current.select(
            F.lit(False).alias("gone"), *[self._ended(column).alias(f"c{place}") for place, column in columns]
        )
        before = current.select(
            F.lit(True).alias("gone"), *[F.col(quoted(column.name)).alias(f"c{place}") for place, column in columns]
        )
        moves = any(column.name in self._values for column in self._shape.key)
        changed = after.unionByName(before) if moves else after
        return changed.join(staged.select(*keys).distinct(), keys, "left_anti").select(*staged.columns)

    def _ended(self, column: SourceColumn) -> Column:
        value, ended = F.col(quoted(column.name)), self._values.get(column.name)
        return value if ended is None else F.when(self._is_current, ended).otherwise(value)
