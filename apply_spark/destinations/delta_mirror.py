"""One Delta table, by Spark and by its log, where Delta's SQL has no word for something.

A table keeps, for each application that writes to it, the number that the last commit gave (`txnVersion`), over
OPTIMIZE, VACUUM and the cleaning of its log. A commit that has looked at that number fails if another commit changes it
meanwhile, and Delta drops, without a word, one that brings a number that is not higher. So the number can hold two
things: who writes (the owner, higher with every start of apply) and what was written (the number of the plan).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import stamina
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention
from pyspark.sql.types import DataType, StructField, StructType

from apply_spark.destinations.delta_refusals import is_conflict
from apply_spark.destinations.plans import taken
from apply_spark.destinations.spark_changes import merge
from apply_spark.destinations.spark_jvm import java_class, jvm, jvm_session
from apply_spark.destinations.spark_mirror import How, Mark, Ready, Shape
from apply_spark.destinations.spark_types import quoted, spark_type
from apply_spark.errors import DestinationTaken
from schemas.lsn import NOWHERE, Lsn
from schemas.table import Column

_PROPERTIES = {
    "delta.columnMapping.mode": "name",  # any name, and columns that are renamed or dropped
    "delta.enableDeletionVectors": "true",  # a change of few rows rewrites no file
    "delta.feature.timestampNtz": "supported",
    "delta.checkpointInterval": "50",  # of Delta's log: each costs as much as a small merge
}
_DELTA = "org.apache.spark.sql.delta"
_APPLICATION = "spark.databricks.delta.write.txnAppId"
_VERSION = "spark.databricks.delta.write.txnVersion"
_ATTEMPTS = 5
_PLAN_BITS = 40
_COLUMN, _SINCE = "penstock.column", "penstock.since"
"""In the metadata of a column: the one that it is at the source, whose number stays when it is renamed; and the LSN to
which the batch led that gave the mirror its shape."""


class DeltaMirror:
    """The table at a path."""

    def __init__(self, spark: SparkSession, path: str, application: str) -> None:
        self._path = path
        self._application = application
        self._spark = spark

    def frame(self) -> DataFrame:
        return self._spark.read.format("delta").load(self._path)

    def is_foreign(self) -> bool:
        transaction = self._begun()
        return int(transaction.readVersion()) >= 0 and self._mark(transaction) is None

    def mark(self) -> Mark | None:
        return self._mark(self._begun())

    def shape(self) -> Shape | None:
        transaction = self._begun()
        if self._mark(transaction) is None:
            return None
        fields = [field for field in _fields(transaction.metadata()) if _COLUMN in field["metadata"]]
        return Shape(
            tuple(replace(_column_of(field), name=field["name"]) for field in fields),
            max((Lsn(int(field["metadata"][_SINCE])) for field in fields), default=NOWHERE),
        )

    def fence(self, owner: int) -> Mark | None:
        """A commit that comes between look and commit makes this one fail, and is seen by the next look."""
        for attempt in stamina.retry_context(on=is_conflict, attempts=_ATTEMPTS):
            with attempt:
                transaction = self._begun()
                found = self._mark(transaction)
                if found is not None:
                    self._commit(transaction, Mark(owner, found.plan))
        return found

    def make(self, shape: Shape, mark: Mark) -> None:
        """A table that is new is a commit of metadata: Spark has no work with it."""
        fields = [_field_of(column, shape.since) for column in shape.columns]
        transaction = self._begun()
        if int(transaction.readVersion()) >= 0:
            self._replace(shape, self._spark.createDataFrame([], StructType(fields)), mark)
            return
        properties = self._java("org.apache.spark.api.python.PythonUtils").toScalaMap(_PROPERTIES)
        described = [field.jsonValue() for field in fields]
        self._describe(transaction, described, properties, mark)

    def write(self, ready: Ready, mark: Mark) -> None:
        if ready.how in (How.APPEND, How.OVERWRITE):
            names = [column.name for column in ready.schema.columns]
            rows = ready.rows.select(*[F.col(f"c{place}").alias(name) for place, name in enumerate(names)])
            self._write(rows, ready.how, mark, {})
        else:
            self._merge(ready, mark)

    def reshape(self, shape: Shape, mark: Mark) -> None:
        """No file is touched."""
        transaction = self._begun()
        found = self._mark(transaction)
        if found is None or found >= mark:
            raise taken(self._path)
        metadata = transaction.metadata()
        has = {_column_of(field).number: field for field in _fields(metadata) if _COLUMN in field["metadata"]}
        fields = [_renewed(has.get(column.number), _field_of(column, shape.since)) for column in shape.columns]
        self._describe(transaction, fields, transaction.metadata().configuration(), mark)

    def rewrite(self, shape: Shape, rows: Callable[[], DataFrame], mark: Mark) -> None:
        self._replace(shape, rows(), mark)

    def remove(self) -> None:
        """Delta would remember its log."""
        path = self._java("org.apache.hadoop.fs.Path")(self._path)
        session = jvm_session(self._spark)
        path.getFileSystem(session.sessionState().newHadoopConf()).delete(path, True)
        self._java(f"{_DELTA}.DeltaLog").invalidateCache(session, path)

    # By Spark.

    def _replace(self, shape: Shape, rows: DataFrame, mark: Mark) -> None:
        fields = [_field_of(column, shape.since) for column in shape.columns]
        columns = [F.col(quoted(each.name)).alias(each.name, metadata=each.metadata) for each in fields]
        self._write(rows.select(*columns), How.OVERWRITE, mark, {"overwriteSchema": "true", **_PROPERTIES})

    def _write(self, rows: DataFrame, how: How, mark: Mark, options: dict[str, str]) -> None:
        writer = rows.write.format("delta").mode(how.value).options(**options)
        writer.option("txnAppId", self._application).option("txnVersion", _version(mark)).save(self._path)
        if self.mark() != mark:
            raise self._dropped()

    def _merge(self, ready: Ready, mark: Mark) -> None:
        spark = ready.rows.sparkSession
        spark.conf.set(_APPLICATION, self._application)
        spark.conf.set(_VERSION, _version(mark))
        try:
            done = merge(ready, f"delta.{quoted(self._path)}")
        finally:
            spark.conf.unset(_APPLICATION)
            spark.conf.unset(_VERSION)
        if not done:
            raise self._dropped()

    def _dropped(self) -> DestinationTaken:
        return DestinationTaken(
            f"Another apply has written to {self._path}, or somebody removed the folder of its plans."
        )

    # By its log.

    def _begun(self) -> Any:  # noqa: ANN401 -- an object of the JVM
        log = self._java(f"{_DELTA}.DeltaLog")
        return log.forTable(jvm_session(self._spark), self._path).startTransaction()

    def _describe(self, transaction: Any, fields: list[dict[str, Any]], properties: Any, mark: Mark) -> None:  # noqa: ANN401
        """A commit that gives the table these columns and properties, and the mark."""
        metadata = transaction.metadata()
        changed = metadata.copy(
            metadata.id(),
            metadata.name(),
            metadata.description(),
            metadata.format(),
            json.dumps({"type": "struct", "fields": fields}),
            metadata.partitionColumns(),
            properties,
            metadata.createdTime(),
        )
        transaction.updateMetadata(changed, False)
        self._commit(transaction, mark)

    def _mark(self, transaction: Any) -> Mark | None:  # noqa: ANN401
        version = transaction.txnVersion(self._application)
        return Mark(version >> _PLAN_BITS, version & (1 << _PLAN_BITS) - 1) if version >= 0 else None

    def _commit(self, transaction: Any, mark: Mark) -> None:  # noqa: ANN401
        nothing = self._java("scala.Option").empty()
        marked = self._java(f"{_DELTA}.actions.SetTransaction")(self._application, _version(mark), nothing)
        actions = self._java("scala.jdk.javaapi.CollectionConverters").asScala(self._java("java.util.List").of(marked))
        transaction.commit(actions.toSeq(), getattr(self._java(f"{_DELTA}.DeltaOperations$ManualUpdate$"), "MODULE$"))

    def _java(self, name: str) -> Any:  # noqa: ANN401
        return java_class(jvm(self._spark), name)


def _version(mark: Mark) -> int:
    return mark.owner << _PLAN_BITS | mark.plan


def _field_of(column: Column, since: Lsn) -> StructField:
    """The column of a mirror that a column of the source becomes."""
    kind = DataType.fromDDL(spark_type(column).name)
    return StructField(column.name, kind, metadata={_COLUMN: json.dumps(asdict(column)), _SINCE: str(int(since))})


def _column_of(field: dict[str, Any]) -> Column:
    return Column(**json.loads(field["metadata"][_COLUMN]))


def _renewed(field: dict[str, Any] | None, new: StructField) -> dict[str, Any]:
    """Delta knows a field by what it keeps in its metadata, and gives that to one that has none."""
    described: dict[str, Any] = new.jsonValue()
    return described if field is None else described | {"metadata": {**field["metadata"], **described["metadata"]}}


def _fields(metadata: Any) -> list[dict[str, Any]]:  # noqa: ANN401 -- an object of the JVM
    fields: list[dict[str, Any]] = json.loads(metadata.schemaString() or '{"fields": []}')["fields"]
    return fields
