"""When a table that is held by an error is tried again by apply itself: later each time, and never later than a bound.

Attempt and time are part of the table's progress, so they survive a restart. Times are microseconds since 1970.
"""

from __future__ import annotations

from datetime import timedelta

from apply_spark.config import ApplyTuning
from apply_spark.progress import TableProgress
from schemas.errors import PenstockError, Retry
from schemas.phases import Errored, StoredPhase

_MICROSECOND = timedelta(microseconds=1)
_MOST_DOUBLINGS = 40
"""More than any bound has; without it, the wait of a table that failed for years would be no number any more."""


def wait_after(attempt: int, tuning: ApplyTuning) -> int:
    """How long to wait after so many failures in a row."""
    first, most = tuning.retry_first // _MICROSECOND, tuning.retry_most // _MICROSECOND
    return int(min(first << min(attempt - 1, _MOST_DOUBLINGS), most))


def held(table: TableProgress, error: PenstockError, now: int, tuning: ApplyTuning) -> Errored:
    """The phase of a table that has just failed."""
    assert isinstance(table.phase, StoredPhase)  # noqa: S101 -- only stored phases take part in a batch
    attempt = table.attempts + 1
    next_try = now + wait_after(attempt, tuning) if error.retry is Retry.TIMED else None
    return Errored(error.reason, error.solution, error.retry, attempt, table.phase, next_try)


def is_due(table: TableProgress, now: int, tuning: ApplyTuning) -> bool:
    """Whether it is to be tried again. A time that is further away than any wait was set by a clock that was wrong."""
    if table.paused or not isinstance(table.phase, Errored) or table.phase.next_try is None:
        return False
    return not now < table.phase.next_try <= now + tuning.retry_most // _MICROSECOND
