"""From a batch to one commit of its mirror: an append, an overwrite, or a MERGE.

Everything that may stop the table is found out before: values that have no place, rows that lack columns and have no
base, copies of a row that are to go and are not there. Until then nothing is written.

A mirror may be younger than the rows: it took on a shape, and then a crash or an error kept away the rows that came
with it. Rows from before that shape get it: columns by their numbers, and in new ones what older rows have there.
"""

# ruff: noqa: S608 -- Spark has no composer of statements: names pass through quoted

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from apply_spark.destination import TableChanges
from apply_spark.destinations.delta_mirror import Mark, Mirror, Shape, field_of
from apply_spark.destinations.delta_refusals import refuse_unheld_values
from apply_spark.destinations.delta_types import converted, quoted
from apply_spark.errors import DestinationTaken, PartialRow, TableFailed
from apply_spark.reshape import defaults
from schemas.envelope import avro_name
from schemas.table import Column as SourceColumn
from schemas.table import TableSchema

_PROPERTIES = {
    "delta.columnMapping.mode": "name",  # any name, and columns that are renamed or dropped
    "delta.enableDeletionVectors": "true",  # a change of few rows rewrites no file
    "delta.feature.timestampNtz": "supported",
    "delta.checkpointInterval": "50",  # of Delta's log: each costs as much as a small merge
}
_APPLICATION = "spark.databricks.delta.write.txnAppId"
_VERSION = "spark.databricks.delta.write.txnVersion"
_SOURCE = "penstock_batch"
_YOUNGER = "younger"


class How(enum.Enum):
    """Which commit a batch becomes."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    UPSERT = "merge by key"
    BAG = "merge by whole rows"


@dataclass(frozen=True)
class Ready:
    """Rows in the types of the mirror, as columns c0, c1 and so on; `gone` (boolean) says which are to be found there
    and deleted."""

    schema: TableSchema
    how: How
    rows: DataFrame


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
    if changes.partial:
        names = [None if source is None else avro_name(source.name) for _, source in origins]
        base = [converted(column, "base").alias(f"b{place}") for place, column in enumerate(changes.schema.key)]
        there = seen(mirror, shape).where("false") if changes.truncate else seen(mirror, shape)
        staged = _filled(shape, rows.select("deleted", "missing", *values, *base), names, there)
    else:
        staged = rows.select(F.col("deleted").alias("gone"), *values)
    if changes.truncate:
        return Ready(shape, How.OVERWRITE, staged.where("not gone").drop("gone"))
    return Ready(shape, How.UPSERT, staged)


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


def commit(ready: Ready, mark: Mark, mirror: Mirror) -> None:
    """DestinationTaken: Delta dropped the commit, for the table knows a later owner."""
    match ready.how:
        case How.APPEND | How.OVERWRITE:
            names = [column.name for column in ready.schema.columns]
            rows = ready.rows.select(*[F.col(f"c{place}").alias(name) for place, name in enumerate(names)])
            _write(rows, ready.how, mirror, mark, {})
        case How.UPSERT | How.BAG:
            _merge(ready, mirror, mark)


def replace_mirror(shape: Shape, rows: DataFrame, mirror: Mirror, mark: Mark) -> None:
    """The table in this shape, with these rows, which have its names: one commit, whatever stood there."""
    fields = [field_of(column, shape.since) for column in shape.columns]
    columns = [F.col(quoted(each.name)).alias(each.name, metadata=each.metadata) for each in fields]
    _write(rows.select(*columns), How.OVERWRITE, mirror, mark, {"overwriteSchema": "true", **_PROPERTIES})


def _write(rows: DataFrame, how: How, mirror: Mirror, mark: Mark, options: dict[str, str]) -> None:
    writer = rows.write.format("delta").mode(how.value).options(**options)
    writer.option("txnAppId", mirror.application).option("txnVersion", mark.version).save(mirror.path)
    if mirror.mark() != mark:
        raise _dropped(mirror)


def _merge(ready: Ready, mirror: Mirror, mark: Mark) -> None:
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
    ready.rows.createOrReplaceTempView(_SOURCE)
    spark = ready.rows.sparkSession
    spark.conf.set(_APPLICATION, mirror.application)
    spark.conf.set(_VERSION, mark.version)
    try:
        done = spark.sql(
            f"merge into delta.{quoted(mirror.path)} t using {_SOURCE} s on {same} {matched}"
            f" when not matched and not s.gone then insert ({names}) values ({values})"
        ).collect()
    finally:
        spark.conf.unset(_APPLICATION)
        spark.conf.unset(_VERSION)
        spark.catalog.dropTempView(_SOURCE)
    if not done:
        raise _dropped(mirror)


def _dropped(mirror: Mirror) -> DestinationTaken:
    return DestinationTaken(f"Another apply has written to {mirror.path}, or somebody removed the folder of its plans.")
