"""What goes on with Postgres whatever the loop is waiting for: status updates, often enough that the slot is kept, and
reading, so that the walsender need not wait, too."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from types import TracebackType
from typing import Self, TypeVar

from capture.acknowledgement import Acknowledgement
from capture.metrics import ACKNOWLEDGED_LSN
from capture.replication_connection import ReplicationConnection

_SLICE_SECONDS = 0.001
T = TypeVar("T")


class Pulse:
    """Reports what is acknowledged. `beat` may be called at any rate, best often while the loop waits: it takes in what
    has come, and reports only when a report is due. `with` ends its threads."""

    def __init__(self, connection: ReplicationConnection, acknowledgement: Acknowledgement, seconds: float) -> None:
        self._connection = connection
        self._acknowledgement = acknowledgement
        self._seconds = seconds
        self._last = time.monotonic()
        self._beside = ThreadPoolExecutor(2, "beside-the-pulse")  # one does the work, one asks meanwhile
        self._look: Callable[[float], None] = lambda _now: None
        self._abandon: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._beside.shutdown()

    def watch(self, look: Callable[[float], None], abandon: Callable[[], None]) -> None:
        """While something is waited for, `look` is called with the time, and raises where the other end is gone; then
        `abandon` ends every wait for an answer."""
        self._look, self._abandon = look, abandon

    def beat(self) -> None:
        self._connection.read_ahead()
        if time.monotonic() - self._last >= self._seconds:
            self.report()

    def during(self, work: Callable[[], T]) -> T:
        """Does what may wait long for Kafka, or for an answer of the server, and beats meanwhile. `work` does not touch
        the stream's connection; nothing of it goes on when this raises."""
        return self._until_done(work, self._look, self._abandon)

    def while_asking(self, ask: Callable[[], T], give_up: Callable[[], None]) -> T:
        """The same for a look itself. `give_up` ends its wait for an answer."""
        return self._until_done(ask, lambda _now: None, give_up)

    def _until_done(self, work: Callable[[], T], look: Callable[[float], None], abandon: Callable[[], None]) -> T:
        future = self._beside.submit(work)
        try:
            while not wait([future], _SLICE_SECONDS).done:
                self.beat()
                look(time.monotonic())
        except BaseException:
            abandon()
            wait([future])
            raise
        return future.result()

    def report(self, *, ask_for_reply: bool = False) -> None:
        flushed = self._acknowledgement.flushed
        self._connection.report(flushed, ask_for_reply=ask_for_reply)
        self._last = time.monotonic()
        ACKNOWLEDGED_LSN.set(flushed)
