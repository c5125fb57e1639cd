"""A thread that looks at the server again and again, in a session of its own, beside whatever the stream does."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

import psycopg

from capture.wire import shut_down

_DRAIN_SECONDS = 1.0


class ServerWatch(ABC):
    """Looks every `seconds` while `with` lasts, and a last time at its end, if the server answers then."""

    def __init__(self, name: str, dsn: str, seconds: float) -> None:
        self._dsn = dsn
        self._seconds = seconds
        self._session: psycopg.Connection | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    @abstractmethod
    def _look(self, session: psycopg.Connection) -> None:
        """Called in the thread. An error of psycopg ends the session, and the next look has another."""

    @abstractmethod
    def _failed(self, error: psycopg.Error) -> None:
        """The server cannot be asked."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Also where the server answers nothing any more."""
        self._stop.set()
        self._thread.join(_DRAIN_SECONDS)
        if self._session is not None:
            shut_down(self._session)
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with psycopg.connect(self._dsn, autocommit=True) as session:
                    self._session = session
                    self._look_until_stopped(session)
            except psycopg.Error as error:
                self._failed(error)
                self._stop.wait(self._seconds)

    def _look_until_stopped(self, session: psycopg.Connection) -> None:
        stopped = False
        while not stopped:
            stopped = self._stop.is_set()
            self._look(session)
            self._stop.wait(self._seconds)
