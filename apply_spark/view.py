"""One table as a destination shows it: its schema and its rows on their way in, without what is not to be seen.

A column is shown, hashed, emptied or left out, in `row` as in `key` and `base`, so that a row is found again under what
stands there. Rows that are whole are mapped in Arrow, all others in Spark; never one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from apply_spark.config import Treatment
from apply_spark.destination import TableChanges
from apply_spark.errors import NotShown, TableFailed
from apply_spark.hashing import Hasher, is_hashable
from apply_spark.modes import is_own
from apply_spark.reshape import plain_default
from apply_spark.rows import ArrowRows, Rows, SparkRows
from apply_spark.showing import Showing
from schemas.envelope import avro_name
from schemas.pg_types.registry import column_type
from schemas.table import Column, TableSchema

_TEXT = 25


@dataclass(frozen=True)
class _ShownColumn:
    """A column of the source, and what becomes of it."""

    of: Column
    how: Treatment

    @property
    def field(self) -> str:
        return avro_name(self.of.name)


class TableView:
    """What is shown of a table in one of its shapes."""

    def __init__(self, showing: Showing, hasher: Hasher, schema: TableSchema) -> None:
        """TableFailed: it cannot be shown so."""
        table = schema.name
        treated = [
            _ShownColumn(column, Treatment.SHOW if is_own(column) else showing.treatment(table, column.name))
            for column in schema.columns
        ]
        for column in treated:
            _require_possible(schema, column)
        self._columns = [column for column in treated if column.how is not Treatment.DROP]
        if all(is_own(column.of) for column in self._columns):
            raise TableFailed(table, NotShown("All of its columns are dropped: nothing of it is left to show."))
        self._hasher = hasher
        self._of = schema
        self._is_plain = all(column.how is Treatment.SHOW for column in treated)
        self._fewer = any(column.how in (Treatment.NULL, Treatment.DROP) for column in treated)
        columns = tuple(self._shown(column) for column in self._columns)
        self.schema = replace(schema, name=showing.name_of(table), columns=columns)
        self.treatments = {column.of.number: column.how for column in treated}
        """By the number of the column."""

    def _shown(self, shown: _ShownColumn) -> Column:
        column = shown.of
        match shown.how:
            case Treatment.HASH:
                value = plain_default(column)
                return Column(
                    name=column.name,
                    type_oid=_TEXT,
                    type_name="text",
                    nullable=column.nullable,
                    key=column.key,
                    number=column.number,
                    missing=None if value is None else self._hasher.text(value, column),
                )
            case Treatment.NULL:
                return replace(column, nullable=True, missing=None)
            case _:
                return column

    def copied(self, rows: Rows) -> Rows:
        """Of a copy, with the one column `row`."""
        return self._rows(rows, {"row": self._columns})

    def changes(self, changes: TableChanges) -> TableChanges:
        if self._is_plain:
            return replace(changes, schema=self.schema)
        if not self._of.key:
            return replace(changes, schema=self.schema, rows=SparkRows(self._bag(changes.rows.frame())))
        keys = [column for column in self._columns if column.of.key]
        images = {"key": keys, "row": self._columns}
        if not changes.partial:
            return replace(changes, schema=self.schema, rows=self._rows(changes.rows, images))
        frame = self._frame(changes.rows.frame(), {**images, "base": keys})
        return replace(changes, schema=self.schema, rows=SparkRows(frame.withColumn("missing", self._still_missing())))

    def _rows(self, rows: Rows, images: dict[str, list[_ShownColumn]]) -> Rows:
        if self._is_plain:
            return rows
        if isinstance(rows, ArrowRows):
            return ArrowRows(rows.spark, self._arrow(rows.rows, images))
        return SparkRows(self._frame(rows.frame(), images))

    def _still_missing(self) -> SparkColumn:
        """What the destination has to look up: of a column that is emptied or left out, nothing."""
        looked_up = [c.field for c in self._columns if c.how is not Treatment.NULL]
        return F.filter("missing", lambda name: name.isin(looked_up))

    def _bag(self, rows: DataFrame) -> DataFrame:
        """Rows that differ only in what is not shown are alike: what comes and goes of them is added up anew."""
        shown = self._frame(rows, {"row": self._columns})
        if not self._fewer:
            return shown
        summed = shown.groupBy(F.col("row").alias("equal")).agg(
            F.max_by("row", "net").alias("row"), F.sum("net").alias("net")
        )
        return summed.where("net <> 0").select("row", "net")

    # In Arrow.

    def _arrow(self, rows: pa.Table, images: dict[str, list[_ShownColumn]]) -> pa.Table:
        for image, columns in images.items():
            chunks = rows[image].chunks or [pa.array([], rows[image].type)]
            shown = pa.chunked_array([self._image(chunk, columns) for chunk in chunks])
            rows = rows.set_column(rows.schema.get_field_index(image), image, shown)
        return rows

    def _image(self, images: pa.StructArray, columns: Sequence[_ShownColumn]) -> pa.StructArray:
        values = [self._values(pc.struct_field(images, column.field), column) for column in columns]
        return pa.StructArray.from_arrays(values, [column.field for column in columns], mask=pc.is_null(images))

    def _values(self, values: pa.Array, column: _ShownColumn) -> pa.Array:
        match column.how:
            case Treatment.HASH:
                return self._hasher.array(values, column.of)
            case Treatment.NULL:
                return pa.nulls(len(values), values.type)
            case _:
                return values

    # In Spark.

    def _frame(self, rows: DataFrame, images: dict[str, list[_ShownColumn]]) -> DataFrame:
        others = [name for name in rows.columns if name not in images]
        hashes = any(column.how is Treatment.HASH for column in self._columns)
        ready = self._hasher.ready(rows) if hashes else rows
        return ready.select(*others, *[self._image_in_spark(image, columns) for image, columns in images.items()])

    def _image_in_spark(self, image: str, columns: Sequence[_ShownColumn]) -> SparkColumn:
        fields = [self._value_in_spark(F.col(image)[column.field], column).alias(column.field) for column in columns]
        return F.when(F.col(image).isNotNull(), F.struct(*fields)).alias(image)

    def _value_in_spark(self, value: SparkColumn, column: _ShownColumn) -> SparkColumn:
        match column.how:
            case Treatment.HASH:
                return self._hasher.column(value, column.of)
            case Treatment.NULL:
                return F.when(F.lit(False), value)  # null, of its type
            case _:
                return value


def _require_possible(schema: TableSchema, column: _ShownColumn) -> None:
    name, how = column.of.name, column.how
    if column.of.key and how in (Treatment.NULL, Treatment.DROP):
        raise TableFailed(
            schema.name,
            NotShown(f"Its column {name} is part of the key, by which rows are found: it cannot be {_WORDS[how]}."),
        )
    if how is Treatment.HASH and not is_hashable(column.of):
        kind = column_type(column.of).name
        raise TableFailed(
            schema.name, NotShown(f"Its column {name} is of the type {kind}, which has no hash: null or drop it.")
        )


_WORDS = {Treatment.NULL: "emptied", Treatment.DROP: "dropped"}
