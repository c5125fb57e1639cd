"""Apache Iceberg, written by Spark: each table the Iceberg table `<schema>.<table>` of a catalog.

Iceberg commits one table at a time; spark_mirrors.py says how that is exactly once. A plan is a property of a small
table in the same catalog (iceberg_plans.py), the mark of a commit a property of its table (iceberg_mirror.py), and each
is set by a compare-and-set that all kinds of catalogs have (iceberg_table.py).

The next owner marks the tables that an unfinished plan may still write by a commit of the same kind. It moves main by
an empty snapshot, so that a late commit of the apply before it fails in every catalog, also when Iceberg tries again.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Self

from pydantic import BaseModel, Field, SecretStr, model_validator
from pyspark.sql import SparkSession

from apply_spark.destination import Connector
from apply_spark.destinations.caseless_names import OWN_SCHEMA
from apply_spark.destinations.iceberg_mirror import IcebergMirror
from apply_spark.destinations.iceberg_plans import IcebergPlans
from apply_spark.destinations.iceberg_refusals import is_conflict, refusals
from apply_spark.destinations.iceberg_table import Catalog
from apply_spark.destinations.spark_jvm import java_class, jvm
from apply_spark.destinations.spark_mirrors import SparkMirrors, absolute
from schemas.identifiers import DestinationName, TableName
from schemas.settings import checked

_PROPERTIES = {
    "format-version": "3",
    "write.delete.mode": "merge-on-read",  # deletion vectors: a change of few rows rewrites no file
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
}
_CLEANED = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
"""Every commit writes a file of metadata. Not with a Hadoop catalog: there a commit is the making of the file of the
next version, and one that is gone again could be made twice."""

_RESERVED = frozenset(
    {"_deleted", "_file", "_last_updated_sequence_number", "_partition", "_pos", "_row_id", "_spec_id"}
)
"""Iceberg's columns of metadata. It lets a table be made with such a name, and then reads it no more."""


class CatalogKind(enum.Enum):
    """Who knows which files are a table."""

    REST = "rest"
    JDBC = "jdbc"
    HADOOP = "hadoop"


class IcebergOptions(BaseModel, frozen=True, extra="forbid"):
    """`[destinations.NAME]` with `type = "iceberg"`."""

    catalog: CatalogKind = Field(
        description="`rest`: a server that speaks Iceberg's REST protocol. `jdbc`: a Postgres database. `hadoop`: the"
        " folder of the tables itself."
    )
    uri: SecretStr | None = Field(
        default=None, description="Where the catalog is: `https://...` (`rest`), `jdbc:postgresql://...` (`jdbc`)."
    )
    warehouse: str | None = Field(
        default=None,
        min_length=1,
        description="A folder, or an address that Spark reaches, for the tables; of a `rest` catalog its own word.",
    )
    properties: dict[str, SecretStr] = Field(
        default={}, description="Further properties of the catalog, as Iceberg has them: `credential`, `jdbc.password`."
    )

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.catalog is not CatalogKind.HADOOP and self.uri is None:
            raise ValueError(f"a {self.catalog.value} catalog needs uri")
        if self.catalog is not CatalogKind.REST and self.warehouse is None:
            raise ValueError(f"a {self.catalog.value} catalog needs warehouse")
        return self

    def for_spark(self, name: str) -> dict[str, str]:
        """Settings by which Spark has the catalog under a name."""
        own = {
            "type": self.catalog.value,
            "cache-enabled": "false",  # a table is looked at to see what became of it
            **{key: value.get_secret_value() for key, value in self.properties.items()},
        }
        if self.uri is not None:
            own["uri"] = self.uri.get_secret_value()
        if self.warehouse is not None:
            own["warehouse"] = self.warehouse if self.catalog is CatalogKind.REST else absolute(self.warehouse)
        prefix = f"spark.sql.catalog.{name}"
        return {prefix: "org.apache.iceberg.spark.SparkCatalog", **{f"{prefix}.{key}": own[key] for key in own}}


class IcebergDestination(SparkMirrors):
    """The tables of one catalog. Spark, and a JDBC catalog, know it under the name of the destination."""

    connector: ClassVar[Connector] = Connector(jars=("iceberg", "jdbc"))

    def __init__(self, name: DestinationName, options: Mapping[str, Any]) -> None:
        super().__init__(name, _IcebergTables(name, checked(IcebergOptions, options, f"destinations.{name}")))


class _IcebergTables:
    """A Format: the tables of a catalog, by their names."""

    kind = "iceberg"
    reserved = _RESERVED

    def __init__(self, name: DestinationName, options: IcebergOptions) -> None:
        self.where = f"The Iceberg catalog of destination {name}"
        self._name = name
        self._options = options
        self._properties = _PROPERTIES | (_CLEANED if options.catalog is not CatalogKind.HADOOP else {})
        self._catalog: Catalog

    def opened(self, spark: SparkSession) -> IcebergPlans:
        if self._options.catalog is CatalogKind.JDBC:  # Java finds drivers by itself only among its first jars
            registry = java_class(jvm(spark), "org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry")
            registry.register("org.postgresql.Driver")
        for key, value in self._options.for_spark(self._name).items():
            spark.conf.set(key, value)
        self._catalog = Catalog(spark, self._name)
        return IcebergPlans(self._catalog, self._name, self._properties)

    def mirror(self, table: TableName) -> IcebergMirror:
        return IcebergMirror(self._catalog, table, self._name, self._properties)

    def copy(self, table: TableName) -> IcebergMirror:
        """Two names of Postgres may be longer than what a catalog takes for one."""
        digest = hashlib.sha256("\0".join(table).encode()).hexdigest()[:16]
        return self.mirror(TableName(OWN_SCHEMA, f"{self._name}_copy_{digest}"))

    def refusals(self, table: TableName) -> AbstractContextManager[None]:
        return refusals(table)

    def is_conflict(self, error: Exception) -> bool:
        return is_conflict(error)
