"""Where a replay ends: a bound in, a place in the log out.

A checkpoint covers many transactions. A bound inside its window cuts it: the rows are counted against the whole window,
and those with commit LSN < bound are applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from apply_spark.errors import ReplayImpossible
from apply_spark.history import History
from apply_spark.progress import Progress, TableProgress
from schemas.checkpoint import Checkpoint
from schemas.identifiers import Epoch, LogId
from schemas.lsn import NOWHERE, Lsn

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Numbered = tuple[int, Checkpoint]


@dataclass(frozen=True)
class Target:
    """The destination shall hold exactly the transactions with commit LSN < `lsn`."""

    log_id: LogId
    lsn: Lsn
    boundary: Lsn
    """The checkpoint boundary at or before it; where it is before, the window that follows is cut."""
    epoch: Epoch
    log_offset: int
    """The checkpoint record after the boundary."""
    commit_ts: int

    @property
    def is_cut(self) -> bool:
        return self.boundary < self.lsn

    def begun(self, tables: Iterable[TableProgress]) -> Progress:
        """A destination that stands at the boundary, and has its tables still to fill."""
        made = {table.table: table for table in tables}
        return Progress(self.log_id, self.boundary, self.epoch, self.log_offset, self.commit_ts, made)


def target(checkpoints: Iterable[Numbered], until: Lsn | None) -> Target:
    """Accepted checkpoints of one log, in order; without a bound, its end."""
    previous: Numbered | None = None
    for offset, checkpoint in checkpoints:
        if until is not None and checkpoint.lsn > until:
            if checkpoint.start < until:
                known = previous[1].commit_ts if previous is not None else 0
                return Target(checkpoint.log_id, until, checkpoint.start, checkpoint.epoch, offset, known)
            break
        previous = offset, checkpoint
    else:
        if previous is not None and until is not None and previous[1].lsn < until:
            raise ReplayImpossible(
                f"The log reaches to {previous[1].lsn} only: what was committed from there to {until} is not known.",
                solution="Wait until capture is past it (`penstock status`), or leave --until out.",
            )
    if previous is None:
        raise ReplayImpossible(
            f"Nothing before {until} is left in the log." if until is not None else "The log has no checkpoint yet.",
            solution="Choose a later moment: `penstock status` tells from where on a replay can begin."
            if until is not None
            else "Start `penstock capture`, and replay when its tables are copied.",
        )
    offset, last = previous
    return Target(last.log_id, last.lsn, last.lsn, last.epoch, offset + 1, last.commit_ts)


def leads_to(stored: Progress, wanted: Target, told: History) -> bool:
    """Whether the destination is on the way to that end: before the cut, if there is one, or after it. Two ends inside
    one window share the way, if the same copies and shapes lead to both."""
    if stored.log_offset != wanted.log_offset or stored.lsn not in {wanted.boundary, wanted.lsn}:
        return False
    return all(
        (copy := told.copy_at(table.table, wanted.lsn)) is not None
        and copy.generation == table.generation
        and copy.shapes_between(wanted.boundary, wanted.lsn) == table.shapes_since(wanted.boundary)
        for table in stored.tables.values()
        if table.generation != NOWHERE and stored.lsn < wanted.lsn
    )


@dataclass(frozen=True)
class Window:
    """A checkpoint with rows, and where its topics ended before it, as far as the log tells."""

    offset: int
    checkpoint: Checkpoint
    before: Mapping[str, int]


def windows_after(checkpoints: Iterable[Numbered], moment: int) -> Iterator[Window]:
    """Those whose newest transaction was committed later: one of them has the first such row, in order of commits."""
    ends: dict[str, int] = {}
    for offset, checkpoint in checkpoints:
        if checkpoint.moved and checkpoint.commit_ts > moment:
            yield Window(offset, checkpoint, {each.topic: ends.get(each.topic, 0) for each in checkpoint.moved})
        ends |= {topic: offsets[0] for topic, offsets in checkpoint.ends.items()}


def microseconds(moment: datetime) -> int:
    """Since 1970, exactly."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def moment_text(since_1970: int) -> str:
    return (_EPOCH + timedelta(microseconds=since_1970)).isoformat(sep=" ")
