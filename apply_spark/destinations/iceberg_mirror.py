"""One Iceberg table: rows are written by Spark to a branch, and then main goes there and the mark is set in one commit.

What a reader sees is main. Spark's own commit of an append, an overwrite or a MERGE goes to a branch that begins where
main ends, so nobody sees it; the commit of iceberg_table.py then moves main to it. A crash before that leaves a branch,
which the next commit removes. If main has moved meanwhile, as by rewrite_data_files, the rows are written again.

Two properties of the table say what it holds:

-   The mark, with the number of the snapshot that it came with. If main is older than that, somebody rolled the table
    back, and its rows are not those of the mark.
-   The columns of the source that it has, by the ids of Iceberg's fields, which stay when a column is renamed.

A new column with rows that have a value in it is the one change that takes two commits: Iceberg has one schema for all
branches, so the column is there first, under a name of its own and empty, then the rows with it, under its right name.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import stamina
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention
from pyspark.sql.types import DataType, StructField, StructType

from apply_spark.destinations.iceberg_refusals import is_conflict
from apply_spark.destinations.iceberg_table import PASSING, STAGED, Catalog, Moved, Table, Transaction
from apply_spark.destinations.plans import taken
from apply_spark.destinations.spark_changes import merge
from apply_spark.destinations.spark_jvm import java_class
from apply_spark.destinations.spark_mirror import How, Mark, Ready, Shape
from apply_spark.destinations.spark_types import quoted, spark_type
from schemas.identifiers import DestinationName, TableName
from schemas.lsn import Lsn
from schemas.table import Column
from schemas.topics import escaped

_ATTEMPTS = 5
_COMING = "penstock coming "
"""How the name of a column begins whose values are not there yet."""


class IcebergMirror:
    """The table of a name in a catalog."""

    def __init__(
        self, catalog: Catalog, table: TableName, destination: DestinationName, properties: dict[str, str]
    ) -> None:
        self._catalog = catalog
        self._place = (escaped(table.schema), escaped(table.name))
        self._mark_key, self._shape_key = f"penstock.mark.{destination}", f"penstock.columns.{destination}"
        self._properties = properties

    def frame(self) -> DataFrame:
        return self._catalog.spark.table(quoted(self._catalog.name, *self._place))

    def is_foreign(self) -> bool:
        table = self._table()
        return table is not None and table.property(self._mark_key) is None

    def mark(self) -> Mark | None:
        table = self._table()
        return None if table is None else self._mark(table)

    def shape(self) -> Shape | None:
        table = self._table()
        if table is None or self._mark(table) is None:
            return None
        since, _ = self._columns(table)
        return Shape(tuple(replace(column, name=name) for column, name in self._held(table)), since)

    def fence(self, owner: int) -> Mark | None:
        """A commit that comes between look and commit makes this one fail, and is seen by the next look."""
        found = None
        for attempt in stamina.retry_context(on=is_conflict, attempts=_ATTEMPTS):
            with attempt:
                table = self._table()
                transaction = None if table is None else table.begin()
                found = None if transaction is None else self._mark(transaction)
                if transaction is not None and found is not None:
                    self._commit(transaction, PASSING, Mark(owner, found.plan))
        return found

    def make(self, shape: Shape, mark: Mark) -> None:
        table = self._table()
        fields = [_field_of(column) for column in shape.columns]
        if table is None:
            transaction = self._catalog.create(*self._place, StructType(fields), self._properties)
            transaction.commit(self._told(transaction, shape) | self._marked(transaction, mark))
            return
        transaction = table.begin()
        self._refuse_later_owner(transaction, mark)
        everything = java_class(self._catalog.jvm, "org.apache.iceberg.expressions.Expressions").alwaysTrue()
        transaction.java.newDelete().deleteFromRowFilter(everything).toBranch(PASSING).commit()
        update = transaction.java.updateSchema()
        for field in transaction.fields():
            update = update.deleteColumn(field["name"])
        self._added(update, fields).commit()
        transaction.move(PASSING)
        transaction.commit(self._told(transaction, shape) | self._marked(transaction, mark))

    def write(self, ready: Ready, mark: Mark) -> None:
        table, branch, head = self._staged(mark)
        if ready.how in (How.APPEND, How.OVERWRITE):
            names = [column.name for column in ready.schema.columns]
            rows = ready.rows.select(*[F.col(f"c{place}").alias(name) for place, name in enumerate(names)])
            self._write(rows, ready.how, table, branch)
        else:
            merge(ready, self._target(branch))
        self._commit(self._finished(table, branch, head, mark), branch, mark)

    def reshape(self, shape: Shape, mark: Mark) -> None:
        """No file is touched."""
        transaction = self._there().begin()
        self._empty_columns(transaction, [])
        self._reshape(transaction, shape, {column.number: name for column, name in self._held(transaction)})
        self._commit(transaction, PASSING, mark, shape)

    def rewrite(self, shape: Shape, rows: Callable[[], DataFrame], mark: Mark) -> None:
        transaction = self._there().begin()
        wanted = {(column.number, spark_type(column).name) for column in shape.columns if column.number}
        held = self._held(transaction)
        kept = {column.number: name for column, name in held if (column.number, spark_type(column).name) in wanted}
        coming = {
            column.name: _coming(place) for place, column in enumerate(shape.columns) if column.number not in kept
        }
        self._empty_columns(transaction, [replace(c, name=coming[c.name]) for c in shape.columns if c.name in coming])
        found = self._mark(transaction)
        self._commit(transaction, PASSING, Mark(mark.owner, found.plan if found is not None else 0))

        table, branch, head = self._staged(mark)
        names = {column.name: kept.get(column.number) or coming[column.name] for column in shape.columns}
        renamed = [F.col(quoted(column.name)).alias(names[column.name]) for column in shape.columns]
        self._write(rows().select(*renamed), How.OVERWRITE, table, branch)
        transaction = self._finished(table, branch, head, mark)
        self._reshape(transaction, shape, kept)
        self._commit(transaction, branch, mark, shape)

    def remove(self) -> None:
        self._catalog.remove(*self._place)

    # Rows, on a branch.

    def _staged(self, mark: Mark) -> tuple[Table, str, int | None]:
        """The table with a branch for this mark, and the snapshot where that begins."""
        table = self._there()
        return table, _branch(mark), table.stage(_branch(mark))

    def _write(self, rows: DataFrame, how: How, table: Table, branch: str) -> None:
        """Columns that are not of the source have NULL."""
        missing = [field["name"] for field in table.fields() if field["name"] not in rows.columns]
        types = {field.name: field.dataType for field in self.frame().schema} if missing else {}
        whole = rows.select(
            *[quoted(name) for name in rows.columns], *[F.lit(None).cast(types[name]).alias(name) for name in missing]
        )
        writer = whole.writeTo(self._target(branch))
        if how is How.APPEND:
            writer.append()
        else:
            writer.overwrite(F.lit(True))

    def _target(self, branch: str) -> str:
        return quoted(self._catalog.name, *self._place, f"branch_{branch}")

    def _finished(self, table: Table, branch: str, head: int | None, mark: Mark) -> Transaction:
        """Moved: the rows on the branch do not belong to what main is now."""
        transaction = table.begin()
        self._refuse_later_owner(transaction, mark)
        if transaction.head() != head or transaction.head(branch) is None:
            raise Moved
        return transaction

    # The commit that readers see.

    def _commit(self, transaction: Transaction, branch: str, mark: Mark, shape: Shape | None = None) -> None:
        """The transaction has seen a later owner, or it fails: nobody comes between."""
        self._refuse_later_owner(transaction, mark)
        if self._mark(transaction) is None:  # replaced, or rolled back, since its shape was asked for
            raise Moved
        transaction.move(branch)
        told = self._told(transaction, shape) if shape is not None else {}
        transaction.commit(told | self._marked(transaction, mark))

    def _refuse_later_owner(self, transaction: Transaction, mark: Mark) -> None:
        text = transaction.property(self._mark_key)
        if text is not None and json.loads(text)["owner"] > mark.owner:
            raise taken(".".join(self._place))

    def _marked(self, transaction: Transaction, mark: Mark) -> dict[str, str]:
        return {self._mark_key: json.dumps({**mark._asdict(), "sequence": transaction.sequence()})}

    def _mark(self, table: Table | Transaction) -> Mark | None:
        text = table.property(self._mark_key)
        if text is None:
            return None
        found = json.loads(text)
        return Mark(found["owner"], found["plan"]) if table.sequence() >= found["sequence"] else None

    # Columns.

    def _told(self, transaction: Transaction, shape: Shape) -> dict[str, str]:
        ids = {field["name"]: field["id"] for field in transaction.fields()}
        told = {"since": int(shape.since), "columns": [[ids[each.name], asdict(each)] for each in shape.columns]}
        return {self._shape_key: json.dumps(told)}

    def _columns(self, table: Table | Transaction) -> tuple[Lsn, dict[int, Column]]:
        told: dict[str, Any] = json.loads(table.property(self._shape_key) or '{"since": 0, "columns": []}')
        return Lsn(told["since"]), {number: Column(**column) for number, column in told["columns"]}

    def _held(self, table: Table | Transaction) -> list[tuple[Column, str]]:
        """The columns of the source that are there, with their names."""
        _, columns = self._columns(table)
        fields = [(columns.get(field["id"]), field["name"]) for field in table.fields()]
        return [(column, name) for column, name in fields if column is not None]

    def _reshape(self, transaction: Transaction, shape: Shape, kept: dict[int, str]) -> None:
        """Columns that stay, their names by their numbers, under their new names; then new ones; in this order."""
        gone = {name: None for _, name in self._held(transaction)}
        stay = {kept[column.number]: column.name for column in shape.columns if column.number in kept}
        coming = {_coming(place): column.name for place, column in enumerate(shape.columns)}
        names: dict[str, str | None] = {**coming, **gone, **stay}
        update = transaction.java.updateSchema()
        for field in transaction.fields():
            name = field["name"]
            new = names.get(name, name)
            if new is None:
                update = update.deleteColumn(name)
            elif new != name:
                update = update.renameColumn(name, new)
        update.commit()
        there = [field["name"] for field in transaction.fields()]
        added = [_field_of(column) for column in shape.columns if column.name not in there]
        order = [column.name for column in shape.columns]
        update = self._added(transaction.java.updateSchema(), added)
        if [name for name in there if name in order] + [field.name for field in added] != order:
            update = update.moveFirst(order[0])
            for before, name in pairwise(order):
                update = update.moveAfter(name, before)
        update.commit()

    def _empty_columns(self, transaction: Transaction, coming: list[Column]) -> None:
        """Those that a crash left go."""
        update = transaction.java.updateSchema()
        for field in transaction.fields():
            if field["name"].startswith(_COMING):
                update = update.deleteColumn(field["name"])
        self._added(update, [_field_of(column) for column in coming]).commit()

    def _added(self, update: Any, fields: list[StructField]) -> Any:  # noqa: ANN401 -- objects of the JVM
        types = self._catalog.schema(StructType(fields)).columns() if fields else []
        for field, typed in zip(fields, types, strict=True):
            update = update.addColumn(None, field.name, typed.type(), None)
        return update

    # Where it is.

    def _table(self) -> Table | None:
        return self._catalog.table(*self._place)

    def _there(self) -> Table:
        table = self._table()
        if table is None:
            raise Moved
        return table


def _branch(mark: Mark) -> str:
    return f"{STAGED}{mark.owner}_{mark.plan}"


def _coming(place: int) -> str:
    return f"{_COMING}{place}"


def _field_of(column: Column) -> StructField:
    return StructField(column.name, DataType.fromDDL(spark_type(column).name))
