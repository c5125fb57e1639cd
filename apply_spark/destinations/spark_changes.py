"""From a batch to what one commit of its mirror is made of: an append, an overwrite, or a MERGE.

Everything that may stop the table is found out here: values that have no place, rows that lack columns and have no
base, copies of a row that are to go and are not there. Until then nothing is written.

A mirror may be younger than the rows: it took on a shape, and then a crash or an error kept away the rows that came
with it. Rows from before that shape get it: columns by their numbers, and in new ones what older rows have there.
"""

# ruff: noqa: S608 -- Spark has no composer of statements: names pass through quoted

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from apply_spark.destination import TableChanges
from apply_spark.destinations.spark_ending import Ended
from apply_spark.destinations.spark_mirror import How, Mirror, Ready
from apply_spark.destinations.spark_types import converted, misfit, quoted, spark_type
from apply_spark.errors import NotHeld, PartialRow, TableFailed
from apply_spark.reshape import defaults
from schemas.envelope import avro_name
from schemas.table import Column as SourceColumn
from schemas.table import TableSchema

_SOURCE = "penstock_batch"
_YOUNGER = "younger"


def copied(schema: TableSchema, rows: DataFrame) -> Ready:
    """Rows of a copy, with the one column `row`."""
    there = rows.where("row is not null")
    refuse_unheld_values(there, schema)
    values = [converted(column, "row").alias(f"c{place}") for place, column in enumerate(schema.columns)]
    return Ready(schema, How.APPEND, there.select(*values))


def changed(changes: TableChanges, rows: DataFrame, mirror: Mirror, shape: TableSchema) -> Ready:
    """Changes of a table, for a mirror that has, or will have, this shape."""
    refuse_unheld_values(rows, changes.schema)
    origins = [(column, origin(column, changes.schema)) for column in shape.columns]
    younger = [column for column, source in origins if source is None]
    if younger:
        record = rows.sparkSession.createDataFrame(defaults(younger)).withColumnRenamed("row", _YOUNGER)
        rows = rows.crossJoin(F.broadcast(record))
    values = [
        (converted(column, _YOUNGER) if source is None else converted(source, "key" if source.key else "row")).alias(
            f"c{place}"
        )
        for place, (column, source) in enumerate(origins)
    ]
    if not shape.key:
        return _bag(changes, rows.select("net", *values), mirror, shape)
    ended = Ended(changes.ending, seen(mirror, shape), shape) if changes.ending is not None else None
    if changes.partial:
        names = [None if source is None else avro_name(source.name) for _, source in origins]
        base = [converted(column, "base").alias(f"b{place}") for place, column in enumerate(changes.schema.key)]
        there = ended.rows() if ended is not None else seen(mirror, shape)
        there = there.where("false") if changes.truncate else there
        staged = _filled(shape, rows.select("deleted", "missing", *values, *base), names, there)
    else:
        staged = rows.select(F.col("deleted").alias("gone"), *values)
    if changes.truncate:
        return Ready(shape, How.OVERWRITE, staged.where("not gone").drop("gone"))
    return Ready(shape, How.UPSERT, staged if ended is None else staged.unionByName(ended.besides(staged)))


def origin(column: SourceColumn, schema: TableSchema) -> SourceColumn | None:
    """The same column in another shape of its table."""
    if column.number:
        return next((each for each in schema.columns if each.number == column.number), None)
    return next((each for each in schema.columns if each.name == column.name), None)


def seen(mirror: Mirror, shape: TableSchema) -> DataFrame:
    """The mirror in a shape that it may not have yet: with what its rows have in columns that it lacks."""
    now = mirror.shape()
    has = TableSchema(shape.id, shape.name, now.columns if now is not None else ())
    found = [(column, origin(column, has)) for column in shape.columns]
    rows = mirror.frame().select(*[F.col(quoted(old.name)).alias(new.name) for new, old in found if old is not None])
    lacking = [column for column, old in found if old is None]
    if lacking:
        record = rows.sparkSession.createDataFrame(defaults(lacking))
        refuse_unheld_values(record, TableSchema(shape.id, shape.name, tuple(lacking)))
        values = record.select(*[converted(column, "row").alias(column.name) for column in lacking])
        rows = rows.crossJoin(F.broadcast(values))
    return rows.select(*[quoted(column.name) for column in shape.columns])


def _filled(shape: TableSchema, staged: DataFrame, names: list[str | None], mirror: DataFrame) -> DataFrame:
    """Columns that were not sent come from the row that the mirror has under the base key, before this batch."""
    there = mirror.select(
        *[F.col(quoted(column.name)).alias(f"t{place}") for place, column in enumerate(shape.columns)],
        *[F.col(quoted(column.name)).alias(f"k{place}") for place, column in enumerate(shape.key)],
        F.lit(True).alias("found"),
    )
    same = reduce(Column.__and__, [F.col(f"b{place}") == F.col(f"k{place}") for place in range(len(shape.key))])
    joined = staged.join(there, same, "left")
    lost = joined.where("size(missing) > 0 and found is null").count()
    if lost:
        raise TableFailed(
            shape.name, PartialRow(f"{lost} rows lack columns that were not sent, and have no row to take them from.")
        )
    kept = [
        F.when(F.array_contains("missing", name), F.col(f"t{place}")).otherwise(F.col(f"c{place}")).alias(f"c{place}")
        if name is not None
        else F.col(f"c{place}")
        for place, name in enumerate(names)
    ]
    return joined.select(F.col("deleted").alias("gone"), *kept)


def _bag(changes: TableChanges, staged: DataFrame, mirror: Mirror, shape: TableSchema) -> Ready:
    """Rows without a key: so many copies come, so many go, whichever they are. All copies of a row of which some go are
    deleted, and those that stay come again."""
    names = [f"c{place}" for place in range(len(shape.columns))]
    coming = staged.where("net > 0").withColumn("copy", F.explode(F.sequence(F.lit(1), F.col("net")))).select(*names)
    if changes.truncate:
        return Ready(shape, How.OVERWRITE, coming)
    going = staged.where("net < 0").groupBy(*names).agg(F.sum(-F.col("net")).alias("going"))
    wanted = going.agg(F.sum("going")).collect()[0][0]
    if wanted is None:
        return Ready(shape, How.APPEND, coming)
    columns = [F.col(quoted(column.name)).alias(f"t{place}") for place, column in enumerate(shape.columns)]
    same = [F.col(f"t{place}").eqNullSafe(F.col(f"c{place}")) for place in range(len(names))]
    of_a_row = Window.partitionBy(*names).orderBy(F.lit(0))
    joined = seen(mirror, shape).select(*columns).join(going, reduce(Column.__and__, same))
    found = joined.withColumn("copy", F.row_number().over(of_a_row))
    gone = found.where("copy <= going").count()
    if gone != wanted:
        raise TableFailed(shape.name, PartialRow(f"{wanted} rows were to go, {gone} were found."))
    stay = found.where("copy > going").select(*[F.col(f"t{place}").alias(name) for place, name in enumerate(names)])
    come = stay.unionByName(coming).withColumn("gone", F.lit(False))
    return Ready(shape, How.BAG, come.unionByName(going.drop("going").withColumn("gone", F.lit(True))))


def merge(ready: Ready, target: str) -> list[object]:
    """Runs the MERGE into a table, named as in SQL; returns what Spark says of it."""
    columns = [(quoted(column.name), f"s.c{place}") for place, column in enumerate(ready.schema.columns)]
    if ready.how is How.BAG:
        same = " and ".join(["s.gone", *[f"t.{name} <=> {value}" for name, value in columns]])
        matched = "when matched then delete"
    else:
        keys = {quoted(column.name) for column in ready.schema.key}
        same = " and ".join(f"t.{name} = {value}" for name, value in columns if name in keys)
        values = ", ".join(f"t.{name} = {value}" for name, value in columns)
        matched = f"when matched and s.gone then delete when matched then update set {values}"
    names, values = (", ".join(part) for part in zip(*columns, strict=True))
    spark = ready.rows.sparkSession
    ready.rows.createOrReplaceTempView(_SOURCE)
    try:
        return list(
            spark.sql(
                f"merge into {target} t using {_SOURCE} s on {same} {matched}"
                f" when not matched and not s.gone then insert ({names}) values ({values})"
            ).collect()
        )
    finally:
        spark.catalog.dropTempView(_SOURCE)


def refuse_unheld_values(rows: DataFrame, schema: TableSchema) -> None:
    """One job, and none where the types of the table hold every value. TableFailed: a value has no place."""
    images = [("row", schema.columns), ("key", schema.key if "key" in rows.columns else ())]
    checks = [(column, misfit(column, image)) for image, columns in images for column in columns]
    risky = [(column, check) for column, check in checks if check is not None]
    if not risky:
        return
    counts = rows.agg(*[F.count_if(check) for _, check in risky]).collect()[0]
    for (column, _), count in zip(risky, counts, strict=True):
        if count:
            held = spark_type(column)
            raise TableFailed(
                schema.name,
                NotHeld(
                    f"A value does not fit column {column.name} ({held.name}) of the mirror: it has no place for"
                    f" {held.unheld}.",
                    solution="Change the value, or leave the column out of the publication; then"
                    " run `penstock resync TABLE`.",
                ),
            )
