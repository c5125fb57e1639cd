"""Mode `history`: a row for every version of a row. A version ends where the next one of its key begins.

The key of a version is that of the row and where the version ends, so to end one is to move it. Of the changes of a key
in one transaction only the last one counts: nobody ever saw the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from apply_spark.config import Mode
from apply_spark.destination import Ending, TableChanges
from apply_spark.fold import KEPT, Contents, filled_back, is_simple, key_struct, move, sent, sent_columns
from apply_spark.modes import OPEN, VALID_FROM, VALID_FROM_LSN, VALID_TO, VALID_TO_LSN, kept_schema, own_columns
from apply_spark.rows import ArrowRows, Rows, SparkRows
from apply_spark.truncates import Truncate, next_truncate, truncates_of
from apply_spark.versions_here import versions_here
from schemas.envelope import avro_name
from schemas.table import TableSchema


def versions(records: Rows, schema: TableSchema, found: Contents) -> TableChanges:
    """The records of one table in one interval, as what they do to its versions."""
    truncates = truncates_of(records, found)
    held = truncates[0].lsn if truncates else OPEN
    rows: Rows
    if isinstance(records, ArrowRows) and is_simple(records.rows, schema, found):
        rows = ArrowRows(records.spark, versions_here(records.rows, schema, truncates, held))
    else:
        rows = SparkRows(_versions(records.frame(), schema, found, truncates, held))
    ending = _ending(truncates[0]) if truncates else None
    return TableChanges(kept_schema(Mode.HISTORY, schema), truncate=False, rows=rows, partial=True, ending=ending)


def _versions(
    records: DataFrame, schema: TableSchema, found: Contents, truncates: Sequence[Truncate], held: int
) -> DataFrame:
    images = _images(records, schema, truncates)
    if found.moves and found.partial:
        images = images.localCheckpoint(storageLevel=KEPT)  # as in a fold: read for every move in a chain
        images = filled_back(_last_of_transactions(images), images.where("last_op = 'd'"), schema)
    else:
        images = _last_of_transactions(images)
    return _events(_ended(images), schema, held)


def _images(records: DataFrame, schema: TableSchema, truncates: Sequence[Truncate]) -> DataFrame:
    """Each record as what was sent of the row until then, since it was created or moved here."""
    image = F.when(F.col("after").isNotNull(), F.col("after")).otherwise(F.col("before"))
    of_a_key = Window.partitionBy("key").orderBy("commit_lsn", "ordinal")
    of_a_life = Window.partitionBy("key", "life").orderBy("commit_lsn", "ordinal")
    return (
        records.where("op <> 't'")
        .withColumn("position", F.struct("commit_lsn", "ordinal"))
        .withColumn("key", key_struct(schema, image))
        .withColumn("life", F.sum(F.when(F.col("op") == "c", 1).otherwise(0)).over(of_a_key))
        .select(
            "key",
            "life",
            F.col("op").alias("last_op"),
            F.col("position").alias("last_position"),
            F.last(move(schema), ignorenulls=True).over(of_a_life).alias("moved"),
            F.when(F.col("life") == 0, F.col("key")).alias("base"),
            F.struct(F.col("commit_lsn").alias("lsn"), F.col("ts_us").alias("ts")).alias("begins"),
            next_truncate(truncates).alias("truncated"),
            (F.first("op").over(of_a_key) != "c").alias("existed"),
            *[F.last(value, ignorenulls=True).over(of_a_life).alias(name) for name, value in sent(schema).items()],
        )
    )


def _last_of_transactions(images: DataFrame) -> DataFrame:
    newest = Window.partitionBy("key", "begins.lsn").orderBy(F.col("last_position").desc())
    return images.withColumn("rank", F.row_number().over(newest)).where("rank = 1").drop("rank")


def _ended(images: DataFrame) -> DataFrame:
    """With where each version ends (null: it is current), and whether a change is the first one of its key."""
    of_a_key = Window.partitionBy("key").orderBy("begins.lsn")
    return images.withColumn("ends", F.least(F.lead("begins").over(of_a_key), F.col("truncated"))).withColumn(
        "first", F.row_number().over(of_a_key) == 1
    )


def _events(images: DataFrame, schema: TableSchema, held: int) -> DataFrame:
    """Up to three of each image: its own version, the end of the version from before, and what that leaves behind.

    `held` is where the destination has the versions that were current before the interval."""
    ends, begins = _nullable(F.coalesce(F.col("ends.lsn"), F.lit(OPEN))), F.col("begins.lsn")
    is_seen = (F.col("last_op") != "d") & (begins < ends)
    is_end = F.col("first") & F.col("existed")
    is_taken = (is_seen & (ends == held)) | (is_end & (begins == held))
    events = F.array(
        F.when(is_seen, _version(schema, ends, held)),
        F.when(is_end, _end(schema, held)),
        F.when(is_end & ~F.col("taken"), _gone(schema, held)),
    )
    return (
        images.withColumn("taken", F.max(is_taken).over(Window.partitionBy("key")))
        .select(F.explode(F.array_compact(events)).alias("event"))
        .select("event.*")
    )


def _version(schema: TableSchema, ends: Column, held: int) -> Column:
    """One that begins in the interval. What was never sent of it is in the version from before."""
    columns = dict(zip([avro_name(column.name) for column in schema.columns], sent_columns(schema), strict=True))
    own = (F.col("begins.ts"), F.col("ends.ts"), F.col("begins.lsn"), ends)
    row = _row(own, {field: F.col(column)["value"] for field, column in columns.items()})
    missing = [F.when(F.col(column).isNull(), F.lit(field)) for field, column in columns.items()]
    base = F.when(F.col("base").isNotNull(), _key(schema, F.lit(held), "base"))
    return _event(_key(schema, ends), row, F.array_compact(F.array(*missing)), base)


def _end(schema: TableSchema, held: int) -> Column:
    """The version that was current before the interval, where it ends: nothing else of it is known here."""
    columns = list(zip(schema.columns, sent_columns(schema), strict=True))
    values = {
        avro_name(column.name): F.col("key")[avro_name(column.name)] if column.key else _no(F.col(name)["value"])
        for column, name in columns
    }
    missing = [VALID_FROM.name, VALID_FROM_LSN.name, *[avro_name(c.name) for c in schema.columns if not c.key]]
    begins = F.col("begins")
    row = _row((_no(begins["ts"]), begins["ts"], _no(begins["lsn"]), begins["lsn"]), values)
    key, base = _key(schema, begins["lsn"]), _key(schema, F.lit(held))
    return _event(key, row, F.array(*[F.lit(field) for field in missing]), base)


def _gone(schema: TableSchema, held: int) -> Column:
    """Nothing takes the place of the version from before."""
    like, key = _end(schema, held), _key(schema, F.lit(held))
    return _event(key, _no(like["row"]), F.array().cast("array<string>"), _no(key), deleted=F.lit(True))


def _event(key: Column, row: Column, missing: Column, base: Column, deleted: Column | None = None) -> Column:
    return F.struct(
        (F.lit(False) if deleted is None else deleted).alias("deleted"),
        key.alias("key"),
        row.alias("row"),
        missing.alias("missing"),
        base.alias("base"),
    )


def _row(own: Sequence[Column], values: dict[str, Column]) -> Column:
    ours = dict(zip([column.name for column in own_columns(Mode.HISTORY)], own, strict=True))
    return F.struct(*[value.alias(name) for name, value in (ours | values).items()])


def _no(value: Column) -> Column:
    """Null, of its type."""
    return F.when(F.lit(False), value)


def _key(schema: TableSchema, ends: Column, of: str = "key") -> Column:
    """Of a version, in the order of the columns."""
    names = [avro_name(column.name) for column in schema.key]
    last = _nullable(ends.cast("long")).alias(VALID_TO_LSN.name)
    return F.struct(last, *[F.col(of)[name].alias(name) for name in names])


def _nullable(value: Column) -> Column:
    """Arrow has no null struct with a field that is never null."""
    return F.when(F.col("key").isNotNull(), value)


def _ending(first: Truncate) -> Ending:
    """Versions that were current before the interval."""
    return Ending(
        replace(VALID_TO_LSN, missing=str(OPEN)),
        (
            replace(VALID_TO, missing=first.moment.text),
            replace(VALID_TO_LSN, missing=str(first.moment.lsn)),
        ),
    )
