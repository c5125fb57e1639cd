"""Many changes of a row to the last one: moves followed, columns that were not sent filled from earlier images.

latest     where every row was sent whole: the last image of each key, in this process, as Arrow
lives      a row lives from a create (or from before the interval) to a delete; a move ends one life and begins
           another, under another key, whose unsent columns stand in the first
fold       the last life of every key; unsent columns are looked up from life to life, and at the end of the chain
           at the destination, under the key that the row had there
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from schemas.envelope import avro_name
from schemas.lsn import Position
from schemas.table import TableSchema

KEPT = StorageLevel.MEMORY_AND_DISK_2
"""A frame that is cut off from where it came from cannot be computed again: two executors have it, where there are two,
so that one of them may be lost."""


@dataclass(frozen=True)
class Contents:
    """What the records of one table in one interval are like; it decides how they are folded."""

    rows: int
    partial: int
    """Rows with columns that were not sent."""
    takes_away: int
    """Updates and deletes."""
    moves: int
    """Key changes."""
    truncated_at: Position | None


def contents_columns() -> list[Column]:
    """One aggregate row: what Contents needs."""
    position = F.struct("commit_lsn", "ordinal")
    return [
        F.count(F.lit(1)).alias("rows"),
        F.count_if(F.size("unchanged") > 0).alias("partial"),
        F.count_if(F.col("op").isin("u", "d")).alias("takes_away"),
        F.count_if((F.col("op") == "c") & F.col("before").isNotNull()).alias("moves"),
        F.max(F.when(F.col("op") == "t", position)).alias("truncated_at"),
    ]


def only_rows(rows: int) -> Contents:
    """Of copied rows: whole, and nothing else."""
    return Contents(rows=rows, partial=0, takes_away=0, moves=0, truncated_at=None)


def is_simple(rows: pa.Table, schema: TableSchema, contents: Contents) -> bool:
    """Whether `latest` folds them: sent whole, with a key of which equal values have equal bytes."""
    image = rows.schema.field("after").type
    kinds = [image.field(avro_name(column.name)).type for column in schema.key]
    return bool(kinds) and not contents.partial and all(any(same(kind) for same in _SAME_BYTES) for kind in kinds)


def latest(rows: pa.Table, schema: TableSchema, contents: Contents) -> pa.Table:
    """The last image of each key, as `apply_spark.destination.TableChanges` describes."""
    rows = rows.filter(pc.not_equal(rows["op"], "t")) if contents.truncated_at is not None else rows
    if contents.truncated_at is not None:
        lsn, ordinal = (int(part) for part in contents.truncated_at)
        same = pc.and_(pc.equal(rows["commit_lsn"], lsn), pc.greater(rows["ordinal"], ordinal))
        rows = rows.filter(pc.or_(pc.greater(rows["commit_lsn"], lsn), same))
    fields, keys = [avro_name(column.name) for column in schema.key], keys_of(rows, schema)
    names = [f"k{index}" for index in range(len(keys))]
    order = pc.sort_indices(rows, [("commit_lsn", "ascending"), ("ordinal", "ascending")])
    places = pa.table(keys, names).take(order).append_column("place", pa.array(np.arange(rows.num_rows)))
    last = order.take(places.group_by(names, use_threads=False).aggregate([("place", "max")])["place_max"])
    kept = np.zeros(rows.num_rows, dtype=bool)
    kept[last.to_numpy()] = True
    columns = {
        "deleted": pc.equal(rows["op"], "d"),
        "key": pc.make_struct(*keys, field_names=fields),
        "row": rows["after"],
    }
    return pa.table(columns).filter(pa.array(kept))


def keys_of(rows: pa.Table, schema: TableSchema) -> list[pa.ChunkedArray]:
    """The columns of the key of each record."""
    fields = [avro_name(column.name) for column in schema.key]
    return [pc.coalesce(*[pc.struct_field(rows[image], field) for image in ("after", "before")]) for field in fields]


_SAME_BYTES = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_string, pa.types.is_binary)


def fold(rows: DataFrame, schema: TableSchema, contents: Contents) -> DataFrame:
    """Folds the rows of one table as `apply_spark.destination.TableChanges` describes."""
    changes = rows.where(F.col("op") != "t").withColumn("position", F.struct("commit_lsn", "ordinal"))
    if contents.truncated_at is not None:
        lsn, ordinal = (F.lit(int(part)).cast("long") for part in contents.truncated_at)
        changes = changes.where(F.col("position") > F.struct(lsn.alias("commit_lsn"), ordinal.alias("ordinal")))
    if not schema.key:
        return _net(changes, contents)
    keyed = changes.withColumn(
        "key", key_struct(schema, F.when(F.col("after").isNotNull(), F.col("after")).otherwise(F.col("before")))
    )
    if not contents.partial:
        return _latest(keyed)
    lives = _lives(keyed, schema)
    return _result(_filled(lives, schema) if contents.moves else _newest(lives), schema)


def key_struct(schema: TableSchema, image: Column) -> Column:
    return F.struct(*[image[avro_name(column.name)].alias(avro_name(column.name)) for column in schema.key])


def _net(changes: DataFrame, contents: Contents) -> DataFrame:
    """Without a key rows are a bag: what came and what went, added up for each distinct row.

    -0.0 is equal to 0.0, as in Postgres; a row that came is shown as it came, which a grouping column is not."""
    come = changes.where("after is not null").select(F.col("after").alias("row"), F.lit(1).cast("long").alias("net"))
    if not contents.takes_away:
        return come
    gone = changes.where("op in ('u', 'd')").select(F.col("before").alias("row"), F.lit(-1).cast("long").alias("net"))
    equal = come.unionByName(gone).groupBy(F.col("row").alias("equal"))
    summed = equal.agg(F.max_by("row", "net").alias("row"), F.sum("net").alias("net"))
    return summed.where("net <> 0").select("row", "net")


def _latest(keyed: DataFrame) -> DataFrame:
    """Every row was sent whole: the last image of each key is all there is to know."""
    last = keyed.groupBy("key").agg(F.max_by(F.struct("op", "after"), "position").alias("last"))
    return last.select(
        (F.col("last.op") == "d").alias("deleted"),
        "key",
        F.col("last.after").alias("row"),
    )


def _lives(keyed: DataFrame, schema: TableSchema) -> DataFrame:
    """One row a life: what was sent last of each column, how it ended, and whence it moved."""
    in_order = Window.partitionBy("key").orderBy("commit_lsn", "ordinal")
    numbered = keyed.withColumn("life", F.sum(F.when(F.col("op") == "c", 1).otherwise(0)).over(in_order))
    return numbered.groupBy("key", "life").agg(
        F.max_by("op", "position").alias("last_op"),
        F.max("position").alias("last_position"),
        F.max(move(schema)).alias("moved"),
        *[F.max(value).alias(name) for name, value in sent(schema).items()],
    )


def move(schema: TableSchema) -> Column:
    """Of a record: whence and when the row moved here, if it does so."""
    moves = (F.col("op") == "c") & F.col("before").isNotNull()
    return F.when(moves, F.struct("position", key_struct(schema, F.col("before")).alias("key")))


def sent(schema: TableSchema) -> dict[str, Column]:
    """Of a record, by `sent_columns`: the value of each column and when it was sent, if it was."""
    return {
        name: F.when(
            F.col("after").isNotNull() & ~F.array_contains("unchanged", column.name),
            F.struct("position", F.col("after")[avro_name(column.name)].alias("value")),
        )
        for name, column in zip(sent_columns(schema), schema.columns, strict=True)
    }


def _newest(lives: DataFrame) -> DataFrame:
    """The last life of each key. One that began before the interval has its base at the destination, under its key."""
    newest = Window.partitionBy("key").orderBy(F.col("life").desc())
    last = lives.withColumn("rank", F.row_number().over(newest)).where("rank = 1").drop("rank")
    return last.withColumn("base", F.when(F.col("life") == 0, F.col("key")))


def _filled(lives: DataFrame, schema: TableSchema) -> DataFrame:
    lives = lives.localCheckpoint(storageLevel=KEPT)  # read for every move in a chain; let go with the last reference
    return filled_back(_newest(lives), lives, schema)


def filled_back(images: DataFrame, lives: DataFrame, schema: TableSchema) -> DataFrame:
    """Images of lives, filled from the lives that these moved from: one join for each move in a chain."""
    columns = sent_columns(schema)
    incomplete = reduce(Column.__or__, [F.col(column).isNull() for column in columns])
    looking = (F.col("last_op") != "d") & F.col("moved").isNotNull() & incomplete
    while not images.where(looking).isEmpty():
        images = _one_life_back(images, lives, columns, looking)
    return images


def _result(filled: DataFrame, schema: TableSchema) -> DataFrame:
    columns, fields = sent_columns(schema), [avro_name(column.name) for column in schema.columns]
    deleted = F.col("last_op") == "d"
    row = F.struct(*[F.col(f"{column}.value").alias(field) for column, field in zip(columns, fields, strict=True)])
    missing = [F.when(F.col(column).isNull(), F.lit(field)) for column, field in zip(columns, fields, strict=True)]
    return filled.select(
        deleted.alias("deleted"),
        "key",
        F.when(~deleted, row).alias("row"),
        F.when(deleted, F.array().cast("array<string>")).otherwise(F.array_compact(F.array(*missing))).alias("missing"),
        "base",
    )


def sent_columns(schema: TableSchema) -> list[str]:
    return [f"sent_{index}" for index in range(len(schema.columns))]


def _one_life_back(filled: DataFrame, lives: DataFrame, columns: list[str], looking: Column) -> DataFrame:
    """The delete half of a move stands one ordinal before its create: there ended the life it came from."""
    parents = lives.select(
        F.col("key").alias("parent_key"),
        F.col("last_position").alias("parent_end"),
        F.col("life").alias("parent_life"),
        F.col("moved").alias("parent_moved"),
        *[F.col(column).alias(f"parent_{column}") for column in columns],
    )
    came_from = F.struct(
        F.col("moved.position.commit_lsn").alias("commit_lsn"),
        (F.col("moved.position.ordinal") - 1).alias("ordinal"),
    )
    joined = filled.join(
        parents,
        looking & (F.col("moved.key") == F.col("parent_key")) & (came_from == F.col("parent_end")),
        "left",
    )
    found = F.col("parent_key").isNotNull()
    return joined.select(
        *[column for column in filled.columns if column not in ("moved", "base", *columns)],
        F.when(found, F.col("parent_moved")).alias("moved"),
        *[F.coalesce(F.col(column), F.col(f"parent_{column}")).alias(column) for column in columns],
        F.when(found & (F.col("parent_life") == 0), F.col("parent_key")).otherwise(F.col("base")).alias("base"),
    ).localCheckpoint(storageLevel=KEPT)
