"""The truncates of an interval, where rows stay: which of them ended a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from apply_spark.by_key import ByKey
from apply_spark.fold import Contents
from apply_spark.modes import Moment
from apply_spark.rows import ArrowRows, Rows

_FIELDS = ["commit_lsn", "ordinal", "ts_us"]


@dataclass(frozen=True, order=True)
class Truncate:
    """Where it stands in its transaction, and when that was committed."""

    lsn: int
    ordinal: int
    ts: int | None

    @property
    def moment(self) -> Moment:
        return Moment(self.lsn, self.ts)


def truncates_of(records: Rows, found: Contents) -> list[Truncate]:
    """In their order."""
    if found.truncated_at is None:
        return []
    if isinstance(records, ArrowRows):
        there = records.rows.filter(pc.equal(records.rows["op"], "t"))
    else:
        there = records.frame().where("op = 't'").select(*_FIELDS).toArrow()
    return sorted({Truncate(*row.values()) for row in there.select(_FIELDS).to_pylist()})


def next_truncate(truncates: Sequence[Truncate]) -> Column:
    """Of a record: `lsn` and `ts` of the first truncate after it; null where there is none."""
    found = F.when(F.lit(False), _moment(None, None))
    for truncate in reversed(truncates):
        before = (F.col("commit_lsn") < truncate.lsn) | (
            (F.col("commit_lsn") == truncate.lsn) & (F.col("ordinal") < truncate.ordinal)
        )
        found = F.when(before, _moment(truncate.lsn, truncate.ts)).otherwise(found)
    return found


def is_before(records: ByKey, truncate: Truncate) -> np.ndarray:
    """Which of the records it comes after."""
    lsn, ordinal = records.numbers("commit_lsn"), records.numbers("ordinal")
    return np.asarray((lsn < truncate.lsn) | ((lsn == truncate.lsn) & (ordinal < truncate.ordinal)))


def _moment(lsn: int | None, ts: int | None) -> Column:
    return F.struct(F.lit(lsn).cast("long").alias("lsn"), F.lit(ts).cast("long").alias("ts"))
