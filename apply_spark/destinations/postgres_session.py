"""A session with the server of a destination that does not wait for an answer that cannot come.

Where packets are lost, TCP ends a connection. Where something between goes on answering for the server, nothing does,
and apply would wait without end. So after a silence the server is asked, over a connection of its own, what it does for
this session. As long as it works it is waited for, however long; if it has forgotten the session, or waits for us as
we wait for it, the session is ended, at its end as well: what it holds is given free.
"""

from __future__ import annotations

import time
from contextlib import closing
from datetime import datetime
from typing import NamedTuple, Self

import psycopg
import structlog
from psycopg.abc import RV, PQGen
from psycopg.rows import TupleRow

_SLICE_SECONDS = 0.1
_ASK_SECONDS = 10.0
_BACKEND = """
    select wait_event_type = 'Client', state_change, bytes_processed
      from pg_stat_activity left join pg_stat_progress_copy using (pid) where pid = %s and backend_start = %s
"""

log = structlog.get_logger(__name__)


class Unanswered(psycopg.OperationalError):
    """A command, or the answer to it, was lost on its way."""


class Backend(NamedTuple):
    """What the server does for a session."""

    waits_for_us: bool | None
    since: datetime | None
    copied_bytes: int | None


class PatientSession(psycopg.Connection[TupleRow]):
    """`patience`: how many seconds of silence are usual."""

    _dsn = ""
    _patience = float("inf")
    _known_as: tuple[int, datetime | None] = 0, None
    """Its process at the server, and since when: later another may have that number."""

    @classmethod
    def opened(cls, dsn: str, patience: float, *, autocommit: bool = False) -> Self:
        session = cls.connect(dsn, autocommit=autocommit)
        session.be_patient(dsn, patience)
        return session

    def be_patient(self, dsn: str, patience: float) -> None:
        """From now on; until then nothing is asked."""
        self._dsn, self._patience = dsn, patience
        row = self.execute("select pid, backend_start from pg_stat_activity where pid = pg_backend_pid()").fetchone()
        assert row is not None  # noqa: S101 -- the server knows whom it speaks with
        self._known_as = row

    def wait(self, gen: PQGen[RV], interval: float = _SLICE_SECONDS, timeout: float | None = None) -> RV:
        """Every wait of psycopg for this session."""
        return super().wait(self._watched(gen), interval, timeout)

    def _watched(self, gen: PQGen[RV]) -> PQGen[RV]:
        """The same steps. `ready` is nothing where a slice of time has passed without a sign of the server."""
        looked = time.monotonic()
        seen: Backend | None = None
        try:
            step = next(gen)
            while True:
                ready = yield step
                if ready:
                    looked, seen = time.monotonic(), None
                elif time.monotonic() - looked > self._patience:
                    seen = self._look(seen)
                    looked = time.monotonic()
                step = gen.send(ready)
        except StopIteration as end:
            result: RV = end.value
            return result

    def _look(self, before: Backend | None) -> Backend | None:
        """What the server says it does for us, None where it says nothing; `before` is what it said one look ago."""
        try:
            with closing(_Question.connect(self._dsn, autocommit=True)) as other:
                row = other.execute(_BACKEND, self._known_as).fetchone()
                seen = Backend(*row) if row is not None else None
                if seen is not None and (seen != before or not seen.waits_for_us):
                    return seen
                if seen is not None:
                    other.execute("select pg_terminate_backend(%s)", self._known_as[:1])
        except psycopg.Error as error:
            log.warning("the destination is silent and cannot be asked", error=type(error).__name__)
            return None
        self.close()
        raise Unanswered("the server does nothing for this session, and its answer has not come")


class _Question(psycopg.Connection[TupleRow]):
    """A session for one question, which is not waited for without end either."""

    def wait(self, gen: PQGen[RV], interval: float = _SLICE_SECONDS, timeout: float | None = None) -> RV:
        return super().wait(gen, interval, _ASK_SECONDS if timeout is None else timeout)
