"""Status updates to Postgres: often enough that the slot is kept, whatever the loop is waiting for."""

from __future__ import annotations

import time

from capture.acknowledgement import Acknowledgement
from capture.metrics import ACKNOWLEDGED_LSN
from capture.replication_connection import ReplicationConnection


class Pulse:
    """Reports what is acknowledged. `beat` may be called at any rate; it reports only when a report is due."""

    def __init__(self, connection: ReplicationConnection, acknowledgement: Acknowledgement, seconds: float) -> None:
        self._connection = connection
        self._acknowledgement = acknowledgement
        self._seconds = seconds
        self._last = time.monotonic()

    def beat(self) -> None:
        if time.monotonic() - self._last >= self._seconds:
            self.report()

    def report(self, *, ask_for_reply: bool = False) -> None:
        flushed = self._acknowledgement.flushed
        self._connection.report(flushed, ask_for_reply=ask_for_reply)
        self._last = time.monotonic()
        ACKNOWLEDGED_LSN.set(flushed)
