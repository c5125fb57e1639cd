"""Mode `soft_delete`: a delete is an update that marks the row, and sends nothing else of it.

So the fold does the rest: what a delete does not send comes from earlier images, or from the row that the destination
has. A row that came and went within an interval is there as it last was, marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from apply_spark.config import Mode
from apply_spark.destination import Ending, TableChanges
from apply_spark.fold import Contents, fold
from apply_spark.modes import COMMIT_TS, DELETED, LSN, kept_schema
from apply_spark.rows import SparkRows
from apply_spark.truncates import Truncate, next_truncate
from schemas.envelope import avro_name
from schemas.table import TableSchema

_IMAGES = ("before", "after")


def marked_rows(
    records: DataFrame, schema: TableSchema, found: Contents, truncates: Sequence[Truncate]
) -> TableChanges:
    """The records of one table in one interval, folded."""
    kept = kept_schema(Mode.SOFT_DELETE, schema)
    partial = found.partial + found.takes_away
    contents = replace(found, partial=partial, truncated_at=None)
    rows = fold(_without_deletes(records, schema, truncates), kept, contents)
    ending = _ending(truncates[0]) if truncates else None
    return TableChanges(kept, truncate=False, rows=SparkRows(rows), partial=partial > 0, ending=ending)


def _without_deletes(records: DataFrame, schema: TableSchema, truncates: Sequence[Truncate]) -> DataFrame:
    """What a truncate does to rows that are changed before it in the interval stands in these changes already: the last
    one of a row is what is seen of it."""
    deletes, truncate = F.col("op") == "d", next_truncate(truncates)
    ends = F.when(~deletes, truncate)
    own = [
        (deletes | ends.isNotNull()).alias(DELETED.name),
        F.coalesce(ends["lsn"], F.col("commit_lsn")).alias(LSN.name),
        F.coalesce(ends["ts"], F.col("ts_us")).alias(COMMIT_TS.name),
    ]
    fields = [avro_name(column.name) for column in schema.columns]
    before, after = (F.struct(*own, *[F.col(image)[each].alias(each) for each in fields]) for image in _IMAGES)
    unsent = F.array(*[F.lit(column.name) for column in schema.columns if not column.key]).cast("array<string>")
    return records.where("op <> 't'").select(
        "commit_lsn",
        "ordinal",
        F.when(deletes, F.lit("u")).otherwise(F.col("op")).alias("op"),
        F.when(~deletes & F.col("before").isNotNull(), before).alias("before"),
        F.when(deletes, before).otherwise(after).alias("after"),
        F.when(deletes, unsent).otherwise(F.col("unchanged")).alias("unchanged"),
    )


def _ending(first: Truncate) -> Ending:
    """Rows that no change of the interval names: the first truncate ended them."""
    return Ending(
        replace(DELETED, missing="f"),
        (
            replace(DELETED, missing="t"),
            replace(LSN, missing=str(first.moment.lsn)),
            replace(COMMIT_TS, missing=first.moment.text),
        ),
    )
