"""The truncates of an interval, where rows stay: which of them ended a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from apply_spark.fold import Contents
from apply_spark.modes import Moment


@dataclass(frozen=True, order=True)
class Truncate:
    """Where it stands in its transaction, and when that was committed."""

    lsn: int
    ordinal: int
    ts: int | None

    @property
    def moment(self) -> Moment:
        return Moment(self.lsn, self.ts)


def truncates_of(records: DataFrame, found: Contents) -> list[Truncate]:
    """In their order."""
    if found.truncated_at is None:
        return []
    rows = records.where("op = 't'").select("commit_lsn", "ordinal", "ts_us").distinct().collect()
    return sorted(Truncate(*row) for row in rows)


def next_truncate(truncates: Sequence[Truncate]) -> Column:
    """Of a record: `lsn` and `ts` of the first truncate after it; null where there is none."""
    found = _moment(None, None)
    found = F.when(F.lit(False), found)
    for truncate in reversed(truncates):
        is_before = (F.col("commit_lsn") < truncate.lsn) | (
            (F.col("commit_lsn") == truncate.lsn) & (F.col("ordinal") < truncate.ordinal)
        )
        found = F.when(is_before, _moment(truncate.lsn, truncate.ts)).otherwise(found)
    return found


def _moment(lsn: int | None, ts: int | None) -> Column:
    return F.struct(F.lit(lsn).cast("long").alias("lsn"), F.lit(ts).cast("long").alias("ts"))
