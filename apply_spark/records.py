"""The records of one schema on one topic, decoded, in this process as Arrow: which count, and what they are like.

Numbers of the interval are compared here and not in Spark: Spark compiles code for each plan, and would do so again for
every window.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from apply_spark.fold import Contents
from apply_spark.intervals import Interval
from schemas.lsn import Lsn, Position


def records(decoded: pa.ChunkedArray) -> pa.Table:
    """Structs to rows of commit_lsn, ordinal, epoch, ts_us (when it was committed), op and images."""
    rows = pa.Table.from_struct_array(decoded)
    source = {name: pc.struct_field(rows["source"], name) for name in ("commit_lsn", "ordinal", "epoch", "ts_us")}
    return pa.table(source | {name: rows[name] for name in ("op", "before", "after", "unchanged")})


def within(rows: pa.Table, interval: Interval) -> pa.Table:
    """What the interval's epoch wrote for its window; a zombie's late queue is outside."""
    inside = pc.and_(
        pc.equal(rows["epoch"], int(interval.epoch)),
        pc.and_(
            pc.greater_equal(rows["commit_lsn"], int(interval.start)),
            pc.less(rows["commit_lsn"], int(interval.window_end)),
        ),
    )
    return _where(rows, inside)


def since(rows: pa.Table, lsn: Lsn) -> pa.Table:
    return _where(rows, pc.greater_equal(rows["commit_lsn"], int(lsn)))


def without(rows: pa.Table, positions: Iterable[Position]) -> pa.Table:
    """All but the rows at these positions."""
    for lsn, ordinal in positions:
        there = pc.and_(pc.equal(rows["commit_lsn"], int(lsn)), pc.equal(rows["ordinal"], ordinal))
        rows = _where(rows, pc.invert(there))
    return rows


def before(rows: pa.Table, lsn: Lsn) -> pa.Table:
    return _where(rows, pc.less(rows["commit_lsn"], int(lsn)))


def each_once(rows: pa.Table) -> pa.Table:
    """Every position once."""
    numbered = rows.select(["commit_lsn", "ordinal"]).append_column("row", pa.array(np.arange(rows.num_rows)))
    first = numbered.group_by(["commit_lsn", "ordinal"], use_threads=False).aggregate([("row", "min")])
    return rows.take(first["row_min"].combine_chunks())


def contents(rows: pa.Table) -> Contents:
    truncates = rows.filter(pc.equal(rows["op"], "t")).select(["commit_lsn", "ordinal"]).to_pylist()
    created = pc.and_(pc.equal(rows["op"], "c"), pc.is_valid(rows["before"]))
    return Contents(
        rows=rows.num_rows,
        partial=_count(pc.greater(pc.list_value_length(rows["unchanged"]), 0)),
        takes_away=_count(pc.is_in(rows["op"], pa.array(["u", "d"]))),
        moves=_count(created),
        truncated_at=max((Position(Lsn(t["commit_lsn"]), t["ordinal"]) for t in truncates), default=None),
    )


def _where(rows: pa.Table, condition: pa.ChunkedArray) -> pa.Table:
    return rows if pc.all(condition, min_count=0).as_py() else rows.filter(condition)


def _count(condition: pa.ChunkedArray) -> int:
    return int(pc.sum(condition, min_count=0).as_py())
