"""How fast the WAL of the slot grows, from what the log says: nobody waits for a second look.

Growth is the pace at which WAL is written, less the pace of whoever holds it. Each pace is measured from the oldest
point of the last five minutes until now; where there is none, from the newest point before. Written: a checkpoint with
rows says when, by the source's clock, its last commit was; an empty one was at the end of the WAL when it was emitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from capture.slot_wal import CAPTURE
from schemas.checkpoint import Checkpoint
from schemas.feedback import Feedback
from schemas.lsn import Lsn

_SECOND = 1_000_000
_WINDOW = 300 * _SECOND
_LEAST = 5 * _SECOND


def wal_growth(
    wal: Lsn, now: int, checkpoints: Sequence[Checkpoint], recent: Sequence[Feedback], holders: Sequence[str]
) -> float | None:
    """Bytes a second that the held WAL grows by, less than 0 where it shrinks; None where too little was seen yet."""
    written = _pace([(c.commit_ts if c.moved else c.emitted_at, c.lsn) for c in checkpoints if not c.opens], wal, now)
    if written is None:
        return None
    released = [_released(name, now, checkpoints, recent) for name in holders]
    known = [pace for pace in released if pace is not None]
    if len(known) < len(released):
        return None
    return written - min(known, default=written)


def _released(holder: str, now: int, checkpoints: Sequence[Checkpoint], recent: Sequence[Feedback]) -> float | None:
    if holder == CAPTURE:
        return _pace([(c.emitted_at, c.lsn) for c in checkpoints], checkpoints[-1].lsn, now)
    heard = [(f.applied_at, f.lsn) for f in recent if f.destination == holder and f.log_id == checkpoints[-1].log_id]
    return _pace(heard, heard[-1][1], now) if heard else 0.0


def _pace(points: Iterable[tuple[int, Lsn]], end: Lsn, now: int) -> float | None:
    """Bytes a second from the first point of the window to `end`, which is reached now."""
    point: tuple[int, Lsn] | None = None
    for point in points:
        if point[0] >= now - _WINDOW:
            break
    if point is None or now - point[0] < _LEAST:
        return None
    at, lsn = point
    return (end - lsn) * _SECOND / (now - at)
