"""Notices that the other end of the stream is gone without a word: a firewall that forgot it, a proxy that froze.

Where packets are lost, TCP's own keepalives and timeouts end the connection. Where something between still answers for
the server, only the server can tell: it ends a walsender that has heard nothing for wal_sender_timeout. So after a
silence of that length it is asked, over a new connection, whether ours still has the slot. A walsender that lives is
left alone, however silent: it may be reading a large transaction of tables that are not published.

Whoever waits at that moment for an answer on the session that reads the catalog would wait for good: it is shut down.
"""

from __future__ import annotations

import psycopg
import structlog

from capture.errors import SourceUnreachable
from capture.pulse import Pulse
from capture.replication_connection import ReplicationConnection, session_dsn
from capture.slots import find_slot
from capture.wire import shut_down
from schemas.identifiers import SlotName
from stores.patient_session import PatientSession

log = structlog.get_logger(__name__)


class LinkWatch:
    """Looks after one stream. `seconds` of silence are usual; 0 where the server never ends a silent walsender."""

    def __init__(
        self,
        connection: ReplicationConnection,
        session: psycopg.Connection,
        pulse: Pulse,
        dsn: str,
        slot: SlotName,
        seconds: float,
    ) -> None:
        self._connection = connection
        self._pulse = pulse
        self._dsn = dsn
        self._slot = slot
        self._seconds = seconds
        self._asked = 0.0
        self._asking: psycopg.Connection | None = None
        pulse.watch(self.look, lambda: shut_down(session))

    def look(self, now: float) -> None:
        """Raises SourceUnreachable where the server no longer streams to us."""
        silent = now - max(self._connection.heard, self._asked)
        if self._seconds and silent > self._seconds:
            self._asked = now
            if not self._pulse.while_asking(self._has_slot, self._give_up):
                raise SourceUnreachable(
                    f"Postgres has said nothing for {now - self._connection.heard:.0f} s, and streams to us no longer."
                )

    def _has_slot(self) -> bool:
        """Whether our walsender holds the slot, as far as can be known: a server that cannot be asked tells nothing."""
        try:
            with PatientSession.opened(session_dsn(self._dsn), self._seconds, autocommit=True) as self._asking:
                slot = find_slot(self._asking, self._slot)
        except psycopg.Error:
            log.warning("the stream is silent and the server cannot be asked", slot=self._slot)
            return True
        return slot is not None and slot.active_pid == self._connection.backend_pid

    def _give_up(self) -> None:
        if self._asking is not None:
            shut_down(self._asking)
