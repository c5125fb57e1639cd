"""A destination that keeps more than the rows that the source has: a Destination around the real one, as `shown` is.

Changes come to it as `kept` made them. What comes as the source has it (copies, alterations, and the catch-up of a copy
that was resumed) gets our columns here. So neither a destination nor the rest of apply knows of modes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from apply_spark.config import Mode
from apply_spark.destination import Alteration, Batch, Destination, TableChanges
from apply_spark.modes import (
    DELETED,
    LSN,
    OP,
    OPEN,
    UNCHANGED,
    VALID_FROM_LSN,
    VALID_TO_LSN,
    is_kept,
    is_own,
    kept_schema,
    own_columns,
)
from apply_spark.progress import Progress
from apply_spark.reshape import defaults, repeated
from apply_spark.rows import ArrowRows, Rows, SparkRows
from schemas.envelope import Op
from schemas.identifiers import DestinationName
from schemas.lsn import Lsn
from schemas.table import Column, TableSchema

_OURS = "ours"


class KeptDestination:
    """What goes in has the source's columns, or all of them; what the destination gets has all."""

    def __init__(self, destination: Destination, mode: Mode) -> None:
        self._destination = destination
        self._mode = mode

    @property
    def name(self) -> DestinationName:
        return self._destination.name

    def startup(self) -> Progress | None:
        return self._destination.startup()

    def shutdown(self) -> None:
        self._destination.shutdown()

    def drop_table_for_copy(self, schema: TableSchema, progress: Progress) -> None:
        self._destination.drop_table_for_copy(kept_schema(self._mode, schema), progress)

    def write_table_rows(self, schema: TableSchema, rows: Rows, progress: Progress) -> None:
        kept, own = kept_schema(self._mode, schema), self._own(schema, progress)
        made: Rows
        if isinstance(rows, ArrowRows):
            made = ArrowRows(rows.spark, _with_own(rows.rows, own))
        else:
            made = SparkRows(_beside_own(rows.frame(), own).select(_image("row", kept.columns)))
        self._destination.write_table_rows(kept, made, progress)

    def write_events(self, batch: Batch) -> None:
        altered = tuple(self._alteration(each) for each in batch.altered)
        tables = tuple(
            changes if is_kept(changes.schema) else self._as_copied(changes, batch.progress) for changes in batch.tables
        )
        self._destination.write_events(Batch(tables, batch.progress, altered))

    def save_progress(self, progress: Progress) -> None:
        self._destination.save_progress(progress)

    def _own(self, schema: TableSchema, progress: Progress) -> list[Column]:
        return _of_copied_rows(self._mode, progress.tables[schema.name].generation)

    def _alteration(self, alteration: Alteration) -> Alteration:
        before, after = (kept_schema(self._mode, shape) for shape in (alteration.before, alteration.after))
        return Alteration(before, after, alteration.changes)

    def _as_copied(self, changes: TableChanges, progress: Progress) -> TableChanges:
        """Rows that are there now, as if they were copied; those that are gone leave nothing."""
        kept = kept_schema(self._mode, changes.schema)
        frame = _beside_own(changes.rows.frame(), self._own(changes.schema, progress))
        if not kept.key:
            coming = frame.select(_image("row", kept.columns), F.lit(1).cast("long").alias("net"))
            return replace(changes, schema=kept, rows=SparkRows(coming))
        images = [_image(name, kept.key) for name in ("key", "base") if name in frame.columns]
        others = [name for name in ("deleted", "missing") if name in frame.columns]
        rows = frame.select(*others, *images, _image("row", kept.columns))
        return replace(changes, schema=kept, rows=SparkRows(rows))


def _of_copied_rows(mode: Mode, generation: Lsn) -> list[Column]:
    """Our columns, with what copied rows have in them. When these were committed nobody knows: before the snapshot."""
    values = {
        OP: Op.READ.value,
        DELETED: "f",
        LSN: str(int(generation)),
        UNCHANGED: "{}",
        VALID_FROM_LSN: str(int(generation)),
        VALID_TO_LSN: str(OPEN),
    }
    return [replace(column, missing=values.get(column)) for column in own_columns(mode)]


def _with_own(rows: pa.Table, own: list[Column]) -> pa.Table:
    images = rows["row"].combine_chunks()
    fields = [field.name for field in images.type]
    values = [
        *[repeated(column, len(images)) for column in own],
        *[pc.struct_field(images, field) for field in fields],
    ]
    names = [*[column.name for column in own], *fields]
    return pa.table({"row": pa.StructArray.from_arrays(values, names, mask=pc.is_null(images))})


def _beside_own(rows: DataFrame, own: list[Column]) -> DataFrame:
    ours = rows.sparkSession.createDataFrame(defaults(own)).withColumnRenamed("row", _OURS)
    return rows.crossJoin(F.broadcast(ours))


def _image(name: str, columns: Sequence[Column]) -> SparkColumn:
    ours = [F.col(_OURS)[column.name].alias(column.name) for column in columns if is_own(column)]
    return F.when(F.col(name).isNotNull(), F.struct(*ours, f"{name}.*")).alias(name)
