"""A session with a Postgres that does not wait for an answer that cannot come.

Where packets are lost, TCP ends a connection. Where something between goes on answering for the server, nothing does,
and we would wait without end. So after a silence the server is asked, over a connection of its own, what it does for
this session. As long as it works it is waited for, however long; if it has forgotten the session, or waits for us as
we wait for it, the session is ended, at its end as well: what it holds is given free.
"""

from __future__ import annotations

import time
from contextlib import closing
from decimal import Decimal
from typing import Any, NamedTuple, Self

import psycopg
import structlog
from psycopg.abc import RV, PQGen
from psycopg.rows import Row, RowFactory, TupleRow, tuple_row

_SLICE_SECONDS = 0.1
_ASK_SECONDS = 10.0
# Times as numbers: a role may have a DateStyle that psycopg does not read.
_MYSELF = "select pid, extract(epoch from backend_start) from pg_stat_activity where pid = pg_backend_pid()"
_BACKEND = """
    select wait_event_type = 'Client', extract(epoch from state_change), bytes_processed
      from pg_stat_activity left join pg_stat_progress_copy using (pid)
     where pid = %s and extract(epoch from backend_start) = %s
"""

log = structlog.get_logger(__name__)


class Unanswered(psycopg.OperationalError):
    """A command, or the answer to it, was lost on its way."""


class Backend(NamedTuple):
    """What the server does for a session."""

    waits_for_us: bool | None
    since: Decimal | None
    copied_bytes: int | None


class PatientSession(psycopg.Connection[Row]):
    """To be made by `opened`."""

    _dsn = ""
    _patience = float("inf")
    _known_as: tuple[int, Decimal | None] = 0, None
    """Its process at the server, and since when: later another may have that number."""
    _looked = 0.0
    _seen: Backend | None = None

    @classmethod
    def opened(
        cls, dsn: str, patience: float, *, autocommit: bool = False, row_factory: RowFactory[Row] | None = None
    ) -> Self:
        """`patience`: how many seconds of silence are usual."""
        session = cls.connect(dsn, autocommit=autocommit, row_factory=row_factory)
        try:
            session.be_patient(dsn, patience)
        except BaseException:
            session.close()
            raise
        return session

    def be_patient(self, dsn: str, patience: float) -> None:
        """From now on; until then nothing is asked."""
        self._dsn, self._patience = dsn, patience
        row = self.cursor(row_factory=tuple_row).execute(_MYSELF).fetchone()
        assert row is not None  # noqa: S101 -- the server knows whom it speaks with
        self._known_as = row

    def wait(self, gen: PQGen[RV], interval: float = _SLICE_SECONDS, timeout: float | None = None) -> RV:
        """Every wait of psycopg for this session."""
        return super().wait(self._watched(gen), interval, timeout)

    def _watched(self, gen: PQGen[RV]) -> PQGen[RV]:
        """The same steps. `ready` is nothing where a slice of time has passed without a sign of the server."""
        self.heard()
        try:
            step = next(gen)
            while True:
                ready = yield step
                if ready:
                    self.heard()
                else:
                    self.look()
                step = gen.send(ready)
        except StopIteration as end:
            result: RV = end.value
            return result

    def heard(self) -> None:
        """The server has given a sign, or nothing was to be expected."""
        self._looked, self._seen = time.monotonic(), None

    def look(self) -> None:
        """To be called while nothing comes, often. Raises Unanswered where nothing will."""
        if time.monotonic() - self._looked <= self._patience:
            return
        try:
            with closing(_Question.connect(self._dsn, autocommit=True)) as other:
                going_on = self._goes_on(other)
        except psycopg.Error as error:
            log.warning("the server is silent and cannot be asked", error=type(error).__name__)
            going_on = True
        self._looked = time.monotonic()
        if not going_on:
            self.close()
            raise Unanswered("the server does nothing for this session, and its answer has not come")

    def _goes_on(self, other: psycopg.Connection[TupleRow]) -> bool:
        """Whether the server does something for us, or did so since the last look."""
        row = other.execute(_BACKEND, self._known_as).fetchone()
        before, self._seen = self._seen, Backend(*row) if row is not None else None
        if self._seen is None:
            return False
        if self._seen == before and self._seen.waits_for_us:
            other.execute("select pg_terminate_backend(%s)", self._known_as[:1])
            return False
        return True


class _Question(psycopg.Connection[Any]):
    """A session for one question, which is not waited for without end either."""

    def wait(self, gen: PQGen[RV], interval: float = _SLICE_SECONDS, timeout: float | None = None) -> RV:
        return super().wait(gen, interval, _ASK_SECONDS if timeout is None else timeout)
