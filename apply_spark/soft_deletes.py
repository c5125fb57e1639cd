"""Mode `soft_delete`: a delete is an update that marks the row, and sends nothing else of it.

So the fold does the rest: what a delete does not send comes from earlier images, or from the row that the destination
has. A row that came and went within an interval is there as it last was, marked. Where every row was sent whole, the
image before a delete is all of it, and it is done in this process, as Arrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from apply_spark.by_key import ByKey, repeated_names
from apply_spark.config import Mode
from apply_spark.destination import Ending, TableChanges
from apply_spark.fold import Contents, fold, is_simple
from apply_spark.modes import COMMIT_TS, DELETED, LSN, kept_schema
from apply_spark.rows import ArrowRows, Rows, SparkRows
from apply_spark.truncates import Truncate, is_before, next_truncate, truncates_of
from schemas.envelope import avro_name
from schemas.table import TableSchema

_IMAGES = ("before", "after")


def marked_rows(records: Rows, schema: TableSchema, found: Contents) -> TableChanges:
    """The records of one table in one interval, folded."""
    kept, truncates = kept_schema(Mode.SOFT_DELETE, schema), truncates_of(records, found)
    ending = _ending(truncates[0]) if truncates else None
    if isinstance(records, ArrowRows) and is_simple(records.rows, schema, found):
        rows = _in_arrow(records.rows, schema, truncates)
        made = ArrowRows(records.spark, rows)
        return TableChanges(kept, truncate=False, rows=made, partial="missing" in rows.column_names, ending=ending)
    contents = replace(found, partial=found.partial + found.takes_away, truncated_at=None)
    folded = SparkRows(fold(_without_deletes(records.frame(), schema, truncates), kept, contents))
    return TableChanges(kept, truncate=False, rows=folded, partial=contents.partial > 0, ending=ending)


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


# In Spark.


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


# In Arrow.


def _in_arrow(records: pa.Table, schema: TableSchema, truncates: Sequence[Truncate]) -> pa.Table:
    """The last change of each key, with the image before it where it is a delete."""
    found = ByKey.of(records, schema)
    last = np.flatnonzero(found.is_last)
    changes = found.taken(last)
    deletes = changes.has_op("d")
    unknown = deletes & changes.is_first
    images = found.records["after"].take(pa.array(last - deletes, mask=unknown)).combine_chunks()
    key = pc.make_struct(*changes.keys.values(), field_names=list(changes.keys))
    fields = [avro_name(column.name) for column in schema.columns]
    row = _own(changes, deletes, truncates) | {
        field: changes.keys[field] if field in changes.keys else pc.struct_field(images, field) for field in fields
    }
    made = {"deleted": np.zeros(len(last), dtype=bool), "key": key, "row": pa.table(row).to_struct_array()}
    if unknown.any():
        unsent = [field for field in fields if field not in changes.keys]
        made |= {"missing": repeated_names(unknown, unsent), "base": pc.if_else(pa.array(unknown), key, None)}
    return pa.table(made)


def _own(changes: ByKey, deletes: np.ndarray, truncates: Sequence[Truncate]) -> dict[str, pa.Array]:
    lsns, times, ended = changes.numbers("commit_lsn").copy(), changes.records["ts_us"], deletes.copy()
    for truncate in reversed(truncates):
        before = ~deletes & is_before(changes, truncate)
        lsns[before], ended[before] = truncate.lsn, True
        times = pc.if_else(pa.array(before), pa.scalar(truncate.ts, pa.int64()), times)
    return {DELETED.name: pa.array(ended), LSN.name: pa.array(lsns), COMMIT_TS.name: times}
