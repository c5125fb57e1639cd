"""Mode `log`: every change becomes a row, and none is ever taken away. In Arrow where the records are there, else in
Spark."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from apply_spark.avro_plan import arrow_type
from apply_spark.config import Mode
from apply_spark.destination import TableChanges
from apply_spark.modes import COMMIT_TS, LSN, OP, ORDINAL, UNCHANGED, kept_schema
from apply_spark.rows import ArrowRows, Rows, SparkRows
from schemas.envelope import avro_name
from schemas.pg_types.registry import column_type
from schemas.table import TableSchema


def logged(records: Rows, schema: TableSchema, untold: Sequence[str]) -> TableChanges:
    """The records of one table in one interval. `untold`: columns that are not even to be named."""
    rows: Rows
    if isinstance(records, ArrowRows) and not untold:
        rows = ArrowRows(records.spark, _in_arrow(records.rows, schema))
    else:
        rows = SparkRows(_in_spark(records.frame(), schema, untold))
    return TableChanges(kept_schema(Mode.LOG, schema), truncate=False, rows=rows, partial=False)


def _in_arrow(records: pa.Table, schema: TableSchema) -> pa.Table:
    """In the order in which they happened."""
    records = records.sort_by([("commit_lsn", "ascending"), ("ordinal", "ascending")]).combine_chunks()
    image = pc.if_else(pc.equal(records["op"], "d"), records["before"], records["after"]).combine_chunks()
    unchanged = arrow_type(column_type(UNCHANGED).branches)
    names = records["unchanged"].combine_chunks().cast(unchanged.field("member0").type)
    own = {
        OP.name: records["op"],
        LSN.name: records["commit_lsn"],
        ORDINAL.name: records["ordinal"],
        COMMIT_TS.name: records["ts_us"],
        UNCHANGED.name: pa.StructArray.from_arrays([names, pa.nulls(len(names), pa.string())], fields=list(unchanged)),
    }
    fields = [avro_name(column.name) for column in schema.columns]
    values = own | {field: pc.struct_field(image, field) for field in fields}
    row = pa.table(values).to_struct_array()
    return pa.table({"row": row, "net": np.ones(records.num_rows, dtype=np.int64)})


def _in_spark(records: DataFrame, schema: TableSchema, untold: Sequence[str]) -> DataFrame:
    image = F.when(F.col("op") == "d", F.col("before")).otherwise(F.col("after"))
    names = F.filter("unchanged", lambda name: ~name.isin(list(untold))) if untold else F.col("unchanged")
    row = F.struct(
        F.col("op").alias(OP.name),
        F.col("commit_lsn").alias(LSN.name),
        F.col("ordinal").alias(ORDINAL.name),
        F.col("ts_us").alias(COMMIT_TS.name),
        F.struct(names.alias("member0"), F.lit(None).cast("string").alias("member1")).alias(UNCHANGED.name),
        *[image[avro_name(column.name)].alias(avro_name(column.name)) for column in schema.columns],
    )
    return records.select(row.alias("row"), F.lit(1).cast("long").alias("net"))
