"""Delta Lake, written by Spark: each table a Delta table under `<path>/<schema>/<table>`.

Delta commits one table at a time; spark_mirrors.py says how that is exactly once. A plan is a file beside the mirrors
(delta_plans.py), and the mark of a commit the number that Delta keeps for an application (delta_mirror.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from pydantic import BaseModel, Field
from pyspark.sql import SparkSession

from apply_spark.destination import Connector
from apply_spark.destinations.caseless_names import OWN_SCHEMA
from apply_spark.destinations.delta_mirror import DeltaMirror
from apply_spark.destinations.delta_plans import DeltaPlans
from apply_spark.destinations.delta_refusals import is_conflict, refusals
from apply_spark.destinations.spark_mirrors import SparkMirrors, absolute
from schemas.identifiers import DestinationName, TableName
from schemas.settings import checked
from schemas.topics import escaped


class DeltaOptions(BaseModel, frozen=True, extra="forbid"):
    """`[destinations.NAME]` with `type = "delta"`."""

    path: str = Field(
        min_length=1, description="A folder, or the address of one that Spark reaches (`s3a://...`); made if needed."
    )


class DeltaDestination(SparkMirrors):
    """One folder of Delta tables."""

    connector: ClassVar[Connector] = Connector(
        jars=("delta",),
        settings={
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "2",  # 50 are for tables of millions of files
        },
    )

    def __init__(self, name: DestinationName, options: Mapping[str, Any]) -> None:
        path = checked(DeltaOptions, options, f"destinations.{name}").path
        super().__init__(name, _DeltaTables(absolute(path), name))


class _DeltaTables:
    """A Format: the tables under a folder, by their paths."""

    kind = "delta"
    reserved: frozenset[str] = frozenset()

    def __init__(self, root: str, name: DestinationName) -> None:
        self.where = root
        self._name = name
        self._spark: SparkSession

    def opened(self, spark: SparkSession) -> DeltaPlans:
        self._spark = spark
        return DeltaPlans(spark, f"{self.where}/{OWN_SCHEMA}/{escaped(self._name)}")

    def mirror(self, table: TableName) -> DeltaMirror:
        return self._mirror(self.where, table)

    def copy(self, table: TableName) -> DeltaMirror:
        return self._mirror(f"{self.where}/{OWN_SCHEMA}/copies/{escaped(self._name)}", table)

    def _mirror(self, root: str, table: TableName) -> DeltaMirror:
        path = f"{root}/{escaped(table.schema)}/{escaped(table.name)}"
        return DeltaMirror(self._spark, path, f"penstock {self._name}")

    def refusals(self, table: TableName) -> AbstractContextManager[None]:
        return refusals(table)

    def is_conflict(self, error: Exception) -> bool:
        return is_conflict(error)
