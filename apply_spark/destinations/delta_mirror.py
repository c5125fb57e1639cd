"""One Delta table, by its log: what Delta's SQL has no word for.

A table keeps, for each application that writes to it, the number that the last commit gave (`txnVersion`), over
OPTIMIZE, VACUUM and the cleaning of its log. A commit that has looked at that number fails if another commit changes it
meanwhile, and Delta drops, without a word, one that brings a number that is not higher. So the number can hold two
things: who writes (the owner, higher with every start of apply) and what was written (the number of the plan).
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import stamina
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructField

from apply_spark.destinations.delta_refusals import is_conflict
from apply_spark.destinations.delta_types import delta_type
from apply_spark.errors import DestinationTaken
from schemas.lsn import NOWHERE, Lsn
from schemas.table import Column

_ATTEMPTS = 5
_PLAN_BITS = 40
_COLUMN, _SINCE = "penstock.column", "penstock.since"
"""In the metadata of a column: the one that it is at the source, whose number stays when it is renamed; and the LSN to
which the batch led that gave the mirror its shape."""


class Mark(NamedTuple):
    """What a commit leaves in its table: which apply made it, and by which plan."""

    owner: int
    plan: int

    @property
    def version(self) -> int:
        return self.owner << _PLAN_BITS | self.plan

    @classmethod
    def of(cls, version: int) -> Mark:
        return cls(version >> _PLAN_BITS, version & (1 << _PLAN_BITS) - 1)


class Shape(NamedTuple):
    """The columns of the source that a mirror has, under the names that they have there, and since when."""

    columns: tuple[Column, ...]
    since: Lsn


class Mirror:
    """The table at a path. It need not be there."""

    def __init__(self, spark: SparkSession, path: str, application: str) -> None:
        self.path = path
        self.application = application
        self._spark = spark

    def frame(self) -> DataFrame:
        return self._spark.read.format("delta").load(self.path)

    def is_there(self) -> bool:
        """Whether there is a table, whoever made it."""
        return int(self._begun().readVersion()) >= 0

    def mark(self) -> Mark | None:
        """Of the last commit. None: no table is there, or none that this destination made."""
        return self._mark(self._begun())

    def shape(self) -> Shape | None:
        """None: no table is there, or none that this destination made."""
        transaction = self._begun()
        if self._mark(transaction) is None:
            return None
        fields = [field for field in _fields(transaction.metadata()) if _COLUMN in field["metadata"]]
        return Shape(
            tuple(replace(_column_of(field), name=field["name"]) for field in fields),
            max((Lsn(int(field["metadata"][_SINCE])) for field in fields), default=NOWHERE),
        )

    def fence(self, owner: int) -> Mark | None:
        """Lets no owner before this one commit any more; the plan that the table holds stays, and is returned. A commit
        that comes between look and commit makes this one fail, and is seen by the next look."""
        for attempt in stamina.retry_context(on=is_conflict, attempts=_ATTEMPTS):
            with attempt:
                transaction = self._begun()
                found = self._mark(transaction)
                if found is not None:
                    self._commit(transaction, Mark(owner, found.plan))
        return found

    def reshape(self, mark: Mark, shape: Shape) -> None:
        """Gives it this shape: columns that it has, by their numbers, under their new names, then new ones, with NULL
        in every row. One commit, and no file is touched."""
        transaction = self._begun()
        found = self._mark(transaction)
        if found is None or found >= mark:
            raise DestinationTaken(f"Another apply has written to {self.path}.")
        metadata = transaction.metadata()
        has = {_column_of(field).number: field for field in _fields(metadata) if _COLUMN in field["metadata"]}
        fields = [_renewed(has.get(column.number), field_of(column, shape.since)) for column in shape.columns]
        schema = json.dumps({"type": "struct", "fields": fields})
        changed = metadata.copy(
            metadata.id(),
            metadata.name(),
            metadata.description(),
            metadata.format(),
            schema,
            metadata.partitionColumns(),
            metadata.configuration(),
            metadata.createdTime(),
        )
        transaction.updateMetadata(changed, False)
        self._commit(transaction, mark)

    def _begun(self) -> Any:  # noqa: ANN401 -- an object of the JVM
        log = jvm(self._spark).org.apache.spark.sql.delta.DeltaLog
        return log.forTable(jvm_session(self._spark), self.path).startTransaction()

    def _mark(self, transaction: Any) -> Mark | None:  # noqa: ANN401
        version = transaction.txnVersion(self.application)
        return Mark.of(version) if version >= 0 else None

    def _commit(self, transaction: Any, mark: Mark) -> None:  # noqa: ANN401
        java = jvm(self._spark)
        delta = java.org.apache.spark.sql.delta
        marked = delta.actions.SetTransaction(self.application, mark.version, java.scala.Option.empty())
        actions = java.scala.jdk.javaapi.CollectionConverters.asScala(java.java.util.List.of(marked)).toSeq()
        transaction.commit(actions, getattr(getattr(delta, "DeltaOperations$ManualUpdate$"), "MODULE$"))


def field_of(column: Column, since: Lsn) -> StructField:
    """The column of a mirror that a column of the source becomes."""
    kind = DataType.fromDDL(delta_type(column).name)
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


def jvm(spark: SparkSession) -> Any:  # noqa: ANN401 -- what it has is known at run time
    """Classes that Spark has loaded, by their names: PySpark has no other word for it."""
    return spark._jvm  # noqa: SLF001


def jvm_session(spark: SparkSession) -> Any:  # noqa: ANN401
    return spark._jsparkSession  # noqa: SLF001
