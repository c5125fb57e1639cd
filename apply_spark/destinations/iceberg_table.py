"""Tables of an Iceberg catalog by Iceberg's own interface, and the one kind of commit that penstock makes there.

A commit moves the branch main of its table to a snapshot that stands ready on a branch of its own, and sets properties
of the table, in one Iceberg transaction. That is a compare-and-set, in every catalog:

-   Iceberg makes a transaction again by itself when another commit came between, but not one that moves a branch: its
    references belong to the metadata that it began with, and on other metadata it fails (CommitFailedException).
-   A REST catalog does not compare the metadata; it compares the snapshot of each branch that moves with the one that
    the transaction saw. So every commit moves main, also one that brings no rows.

Properties of a table outlive its snapshots: rewrite_data_files and expire_snapshots leave them alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from apply_spark.destinations.spark_jvm import java_causes, java_class, jvm, jvm_session

MAIN = "main"
STAGED = "penstock_"
"""How the names of penstock's branches begin."""
PASSING = f"{STAGED}passing"
"""One that is there within a transaction only."""
_GONE = "org.apache.iceberg.exceptions.NoSuchTableException"
_THERE = "org.apache.iceberg.exceptions.AlreadyExistsException"


class Moved(Exception):
    """Another commit came between: the table is to be looked at again."""


class Catalog:
    """The catalog that Spark has under a name."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self.spark = spark
        self.name = name
        self.jvm = jvm(spark)
        session = jvm_session(spark)
        # Spark looks for the settings of a catalog in the session of the thread, which a new thread does not have.
        java_class(self.jvm, "org.apache.spark.sql.classic.SparkSession").setActiveSession(session)
        self._java = session.sessionState().catalogManager().catalog(name).icebergCatalog()

    def table(self, namespace: str, name: str) -> Table | None:
        """As it is now."""
        try:
            return Table(self._java.loadTable(self._identifier(namespace, name)), self.jvm)
        except Py4JJavaError as error:
            if _GONE not in java_causes(error):
                raise
            return None

    def create(self, namespace: str, name: str, shape: StructType, properties: Mapping[str, str]) -> Transaction:
        """A table that is there, with an empty snapshot, when the transaction is committed, or not at all."""
        identifier = self._identifier(namespace, name)
        try:
            self._java.createNamespace(identifier.namespace(), {})
        except Py4JJavaError as error:
            if _THERE not in java_causes(error):
                raise
        builder = self._java.buildTable(identifier, self.schema(shape))
        for key, value in properties.items():
            builder = builder.withProperty(key, value)
        made = Transaction(builder.createTransaction(), self.jvm)
        made.java.newFastAppend().commit()
        return made

    def remove(self, namespace: str, name: str) -> None:
        """With its files. It need not be there."""
        self._java.dropTable(self._identifier(namespace, name), True)

    def schema(self, shape: StructType) -> Any:  # noqa: ANN401 -- an object of the JVM
        """Iceberg's word for Spark's."""
        java = java_class(self.jvm, "org.apache.spark.sql.types.DataType").fromJson(shape.json())
        return java_class(self.jvm, "org.apache.iceberg.spark.SparkSchemaUtil").convert(java)

    def _identifier(self, namespace: str, name: str) -> Any:  # noqa: ANN401 -- an object of the JVM
        return java_class(self.jvm, "org.apache.iceberg.catalog.TableIdentifier").parse(f"{namespace}.{name}")


class _Metadata:
    """What a table says of itself."""

    def __init__(self, java: Any, jvm: Any) -> None:  # noqa: ANN401 -- objects of the JVM
        self._table = java
        self._jvm = jvm

    def property(self, key: str) -> str | None:
        value = self._table.properties().get(key)
        return None if value is None else str(value)

    def head(self, branch: str = MAIN) -> int | None:
        """The snapshot at the end of a branch. None: there is no such branch."""
        reference = self._table.refs().get(branch)
        return None if reference is None else int(reference.snapshotId())

    def sequence(self) -> int:
        """A number that grows with every snapshot of the table; that of the one at the end of main."""
        snapshot = self._table.currentSnapshot()
        return int(snapshot.sequenceNumber()) if snapshot is not None else -1

    def fields(self) -> list[dict[str, Any]]:
        text = java_class(self._jvm, "org.apache.iceberg.SchemaParser").toJson(self._table.schema())
        fields: list[dict[str, Any]] = json.loads(text)["fields"]
        return fields


class Table(_Metadata):
    """A table as it was when it was loaded."""

    def begin(self) -> Transaction:
        """On the table as it is now, which may be newer than what was loaded."""
        return Transaction(self._table.newTransaction(), self._jvm)

    def stage(self, branch: str) -> int | None:
        """A branch of that name at the end of main, whatever it was before; and the snapshot there."""
        head = self.head()
        references = self._table.manageSnapshots()
        if self.head(branch) is not None:
            references = references.removeBranch(branch)
        references.createBranch(branch, head).commit()
        return head

    def expire(self) -> None:
        """Removes every snapshot but the newest, with its files."""
        now = java_class(self._jvm, "java.lang.System").currentTimeMillis()
        self._table.expireSnapshots().expireOlderThan(now).retainLast(1).commit()


class Transaction(_Metadata):
    """What becomes one commit; the table as it will be."""

    def __init__(self, java: Any, jvm: Any) -> None:  # noqa: ANN401 -- objects of the JVM
        super().__init__(java.table(), jvm)
        self.java = java

    def move(self, branch: str) -> None:
        """Main goes on to the end of a branch, by an empty snapshot where that has nothing new; all branches of
        penstock end."""
        if self.head(branch) in (None, self.head()):
            self.java.newFastAppend().toBranch(branch).commit()
        references = self.java.manageSnapshots().fastForwardBranch(MAIN, branch)
        for name in [str(each) for each in self._table.refs().keySet()]:
            if name.startswith(STAGED):
                references = references.removeBranch(name)
        references.commit()

    def commit(self, properties: Mapping[str, str]) -> None:
        update = self.java.updateProperties()
        for key, value in properties.items():
            update = update.set(key, value)
        update.commit()
        self.java.commitTransaction()
