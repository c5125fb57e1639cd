"""How far something was at a moment, from points in between which it is taken to move evenly. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from schemas.checkpoint import Checkpoint
from schemas.feedback import Feedback
from schemas.lsn import Lsn


@dataclass(frozen=True)
class Timeline:
    """(seconds since 1970, how much), in order; neither goes back."""

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        if any(a[0] > b[0] or a[1] > b[1] for a, b in pairwise(self.points)):
            raise ValueError("a timeline does not go back")

    @property
    def total(self) -> float:
        return self.points[-1][1] if self.points else 0.0

    def when(self, amount: float) -> float:
        """The moment at which so much was reached."""
        amounts = [each for _, each in self.points]
        index = bisect_left(amounts, amount)
        if index == len(amounts):
            raise ValueError(f"only {self.total:g} of {amount:g} were reached")
        if index == 0 or amounts[index] == amount:
            return self.points[index][0]
        (t0, a0), (t1, a1) = self.points[index - 1 : index + 1]
        return t0 + (t1 - t0) * (amount - a0) / (a1 - a0)


def rows_of(checkpoint: Checkpoint) -> int:
    return sum(moved.rows for moved in checkpoint.moved)


def captured(start: float, checkpoints: Sequence[Checkpoint]) -> Timeline:
    """Rows on Kafka since `start`, as the checkpoints tell: each was written after Kafka had its rows."""
    totals = accumulate(rows_of(each) for each in checkpoints)
    later = [(each.emitted_at / 1e6, float(rows)) for each, rows in zip(checkpoints, totals, strict=True)]
    return Timeline(((start, 0.0), *[point for point in later if point[0] >= start]))


def rows_before(checkpoints: Sequence[Checkpoint], lsn: Lsn) -> int:
    """How many rows the checkpoints up to an LSN hold."""
    return sum(rows_of(each) for each in checkpoints if each.lsn <= lsn)


def applied(checkpoints: Sequence[Checkpoint], feedbacks: Iterable[Feedback]) -> Timeline:
    """Rows of these checkpoints at the destination, as its feedback tells."""
    return Timeline(tuple((each.applied_at / 1e6, float(rows_before(checkpoints, each.lsn))) for each in feedbacks))


def moving(timeline: Timeline) -> Timeline:
    """From the last point before anything moved to the first at which all was there."""
    points = timeline.points
    first = next((index for index, (_, rows) in enumerate(points) if rows > points[0][1]), None)
    if first is None:
        return timeline
    last = next(index for index, (_, rows) in enumerate(points) if rows == timeline.total)
    return Timeline(points[first - 1 : last + 1])


def first_at(feedbacks: Iterable[Feedback], lsn: Lsn) -> float | None:
    """When a destination first said that it has everything before an LSN."""
    return next((each.applied_at / 1e6 for each in feedbacks if each.lsn >= lsn), None)
