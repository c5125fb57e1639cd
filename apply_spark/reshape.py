"""Rows that were written in an older shape of their table, brought to its last one: in Arrow, and in Spark.

A table changes its shape at a position, and its rows before it are of the shape before. Columns are followed by their
number; a column that came later has, in rows before it, what the source shows there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from apply_spark.avro_plan import arrow_type
from apply_spark.errors import AnotherShape, TableFailed
from schemas.envelope import avro_name
from schemas.evolution import reached
from schemas.lsn import Position
from schemas.pg_types.registry import column_type
from schemas.table import Column, TableSchema

_IMAGES = ("before", "after")


@dataclass(frozen=True)
class Shapes:
    """The shapes that a table has in an interval, one after the other; each but the first begins at a position."""

    shapes: tuple[TableSchema, ...]
    begins: tuple[Position, ...]
    kept: TableSchema | None = None
    """The shape that the mirror has instead: columns that came later are left out of it, those that went are NULL."""

    @property
    def last(self) -> TableSchema:
        return self.kept or self.shapes[-1]

    def reshape(self, rows: pa.Table, written: TableSchema) -> pa.Table:
        """Records in the last shape. TableFailed: some were written in another shape than their position says."""
        if not self.begins and self.kept is None:
            return rows
        parts = []
        for step in self._steps():
            mine = rows.filter(step.in_arrow(rows))
            if mine.num_rows:
                parts.append(_converted(mine, step.require(written), step.to))
        return pa.concat_tables(parts) if parts else rows.slice(0, 0)

    def reshape_in_spark(self, rows: DataFrame, written: TableSchema) -> list[DataFrame]:
        """The same of a frame, in parts; none where it has no rows, which may be of a shape from before."""
        if not self.begins and self.kept is None:
            return [rows] if _fields(written) == _fields(self.last) or not rows.isEmpty() else []
        parts = []
        for step in self._steps():
            mine = rows.where(step.in_spark())
            if step.is_of(written):
                parts.append(_converted_in_spark(mine, step.of, step.to))
            elif not mine.isEmpty():
                step.require(written)
        return parts

    def _steps(self) -> Iterator[_Step]:
        edges = [None, *self.begins, None]
        for place, shape in enumerate(self.shapes):
            to = without_defaults(self.kept) if self.kept is not None else reached(self.shapes[place:])
            yield _Step(shape, to, edges[place], edges[place + 1])


@dataclass(frozen=True)
class _Step:
    """From `begin` to before `end` rows are of a shape; they are to have the last one."""

    of: TableSchema
    to: TableSchema
    begin: Position | None
    end: Position | None

    def is_of(self, written: TableSchema) -> bool:
        return _fields(written) == _fields(self.of)

    def require(self, written: TableSchema) -> TableSchema:
        if not self.is_of(written):
            raise TableFailed(self.of.name, AnotherShape("It has records of another shape than the log tells of."))
        return self.of

    def in_arrow(self, rows: pa.Table) -> pa.ChunkedArray:
        inside = pc.is_valid(rows["commit_lsn"])
        if self.begin is not None:
            inside = pc.and_(inside, pc.invert(_before_in_arrow(rows, self.begin)))
        return inside if self.end is None else pc.and_(inside, _before_in_arrow(rows, self.end))

    def in_spark(self) -> SparkColumn:
        inside = F.lit(True)
        if self.begin is not None:
            inside &= ~_before_in_spark(self.begin)
        return inside if self.end is None else inside & _before_in_spark(self.end)


def without_defaults(schema: TableSchema) -> TableSchema:
    """With NULL where rows lack a column."""
    return replace(schema, columns=tuple(replace(column, missing=None) for column in schema.columns))


def copied_as(rows: pa.Table, of: TableSchema, to: TableSchema) -> pa.Table:
    """Copied rows, with the one column `row`, in the shape that their mirror keeps."""
    if of == to:
        return rows
    chunks = [_image(chunk, of, without_defaults(to)) for chunk in rows["row"].chunks]
    return pa.table({"row": pa.chunked_array(chunks)}) if chunks else rows


def plain_default(column: Column) -> Any:  # noqa: ANN401 -- any type of the type table
    """What rows have in a column that is younger than they are, as a reader of Avro gets it."""
    return None if column.missing is None else column_type(column).parse(column.missing)


def default(column: Column) -> pa.Scalar:
    """The same in Arrow; an array as the struct that its union is read as."""
    value, kind = plain_default(column), column_type(column)
    if kind.element is not None and value is not None:
        value = {"member0": None, "member1": value} if isinstance(value, str) else {"member0": value, "member1": None}
    return pa.scalar(value, arrow_type(kind.branches))


def repeated(column: Column, count: int) -> pa.Array:
    """The same as an array. Arrow repeats no struct zero times."""
    value = default(column)
    return pa.repeat(value, count) if count else pa.array([], value.type)


def defaults(columns: Sequence[Column]) -> pa.Table:
    """What rows have in columns that are younger than they are: one record, with the one column `row`."""
    values = [_single(default(column)) for column in columns]
    return pa.table({"row": pa.StructArray.from_arrays(values, [avro_name(column.name) for column in columns])})


def _fields(schema: TableSchema) -> list[tuple[str, int, str | None]]:
    return [(column.name, column.type_oid, column.delimiter) for column in schema.columns]


def _before_in_arrow(rows: pa.Table, position: Position) -> pa.ChunkedArray:
    lsn, ordinal = (int(part) for part in position)
    same = pc.and_(pc.equal(rows["commit_lsn"], lsn), pc.less(rows["ordinal"], ordinal))
    return pc.or_(pc.less(rows["commit_lsn"], lsn), same)


def _before_in_spark(position: Position) -> SparkColumn:
    lsn, ordinal = (F.lit(int(part)).cast("long") for part in position)
    return (F.col("commit_lsn") < lsn) | ((F.col("commit_lsn") == lsn) & (F.col("ordinal") < ordinal))


def _sources(of: TableSchema, to: TableSchema) -> list[tuple[Column, Column | None]]:
    """Each column of the new shape, and what it was."""
    old = {column.number: column for column in of.columns}
    return [(column, old.get(column.number)) for column in to.columns]


def _names(of: TableSchema, to: TableSchema) -> dict[str, str]:
    return {old.name: new.name for new, old in _sources(of, to) if old is not None}


def _converted(rows: pa.Table, of: TableSchema, to: TableSchema) -> pa.Table:
    for image in _IMAGES:
        chunks = [_image(chunk, of, to) for chunk in rows[image].chunks]
        rows = rows.set_column(rows.schema.get_field_index(image), image, pa.chunked_array(chunks))
    lists = rows["unchanged"]
    if pc.any(pc.greater(pc.list_value_length(lists), 0)).as_py():
        names = _names(of, to)
        renamed = [[names[name] for name in each or () if name in names] for each in lists.to_pylist()]
        place = rows.schema.get_field_index("unchanged")
        rows = rows.set_column(place, "unchanged", pa.chunked_array([pa.array(renamed, lists.type)]))
    return rows


def _image(images: pa.StructArray, of: TableSchema, to: TableSchema) -> pa.StructArray:
    fields = [
        pc.struct_field(images, avro_name(old.name)) if old is not None else repeated(new, len(images))
        for new, old in _sources(of, to)
    ]
    names = [avro_name(column.name) for column in to.columns]
    return pa.StructArray.from_arrays(fields, names, mask=pc.is_null(images))


def _converted_in_spark(rows: DataFrame, of: TableSchema, to: TableSchema) -> DataFrame:
    sources, names = _sources(of, to), _names(of, to)
    added = {_default_name(new): _single(default(new)) for new, old in sources if old is None}
    if added:
        rows = rows.crossJoin(F.broadcast(rows.sparkSession.createDataFrame(pa.table(added))))
    unchanged = F.array_compact(F.transform("unchanged", lambda name: _renamed(name, names)))
    return rows.select(
        "commit_lsn",
        "ordinal",
        "epoch",
        "ts_us",
        "op",
        *[_image_in_spark(image, sources) for image in _IMAGES],
        unchanged.alias("unchanged"),
    )


def _image_in_spark(image: str, sources: list[tuple[Column, Column | None]]) -> SparkColumn:
    fields = [
        (F.col(image)[avro_name(old.name)] if old is not None else F.col(_default_name(new))).alias(avro_name(new.name))
        for new, old in sources
    ]
    return F.when(F.col(image).isNotNull(), F.struct(*fields)).alias(image)


def _renamed(name: SparkColumn, names: dict[str, str]) -> SparkColumn:
    """NULL for a column that is gone."""
    found = F.lit(None).cast("string")
    for old, new in names.items():
        found = F.when(name == old, new).otherwise(found)
    return found


def _default_name(column: Column) -> str:
    return f"default_{column.number}"


def _single(value: pa.Scalar) -> pa.Array:
    return pa.array([value.as_py()], value.type)
