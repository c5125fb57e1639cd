"""The walsender protocol over psycopg's libpq layer: create a slot, start, read frames, report status.

Bytes in, frames out, most of them straight into a pump. A read never blocks longer than it is told to; a lost
connection is SourceUnreachable.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import error_from_result

from capture.config import Failover, Origins, SourceConfig
from capture.errors import SourceUnreachable, source_error
from capture.pgoutput.stream import Frame, StatusUpdate, decode_frame, encode_status_update
from capture.readiness import readable, writable
from capture.stream_wire import stream_wire
from capture.transcode.contract import Pump
from capture.wire import Inbox, wire_of
from schemas.failpoints import failpoint
from schemas.identifiers import SlotName
from schemas.lsn import Lsn

# How values look as text; every session that reads rows says the same, so copy and stream agree to the byte.
_TEXT_FORMAT = {
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "search_path": "pg_catalog",  # names of tables, types and functions as values: always with their schema
    "quote_all_identifiers": "off",
    "idle_in_transaction_session_timeout": "0",
    "statement_timeout": "0",
    "lock_timeout": "0",
}
_COPY_BOTH = b"W"
_ENDS = (b"c", b"C", b"Z")
_SLOT = "creating a replication slot"
_PASSED = (None, b"N", b"S", b"A")
"""No message, or what may come at any time: notices and settings."""
_START_SECONDS = 1.0
_MANY_BYTES = 64 * 1024
_AHEAD_BYTES = 4 * 1024**2


def session_dsn(dsn: str, **further: str) -> str:
    """The user's DSN with the settings that fix how values are printed, and with keepalives for a cut network."""
    given = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    settings = " ".join(f"-c {name}={value}" for name, value in _TEXT_FORMAT.items())
    defaults = {
        "application_name": "penstock",
        "connect_timeout": "10",
        "keepalives_idle": "10",
        "keepalives_interval": "5",
        "keepalives_count": "3",
        "tcp_user_timeout": "30000",  # ms: for what was sent and never arrived; keepalives come only while all is quiet
    }
    options = f"{given.get('options', '')} {settings}".strip()
    return make_conninfo("", **{**defaults, **given, **further, "options": options, "client_encoding": "UTF8"})


class ExportedSlot(NamedTuple):
    """A temporary slot: its consistent point, and the snapshot that shows exactly what committed before it."""

    lsn: Lsn
    snapshot: str


class IdentifiedSystem(NamedTuple):
    """What IDENTIFY_SYSTEM tells: which server, which branch of its history, and where its WAL ends."""

    id: str
    timeline: int
    wal_end: Lsn


class ReplicationConnection:
    """One walsender session."""

    def __init__(self, dsn: str, patience: float = 30.0) -> None:
        """`patience`: how many seconds an answer may take, unless it waits for others by design."""
        self._patience = patience
        self._pg = pq.PGconn.connect(session_dsn(dsn, replication="database").encode())
        if self._pg.status != pq.ConnStatus.OK:
            reason = self._pg.get_error_message().strip().splitlines()[0]
            self._pg.finish()
            raise SourceUnreachable(f"Postgres took no replication connection: {reason}")
        self._wire = wire_of(self._pg)
        self._inbox = Inbox(self._wire, _AHEAD_BYTES)
        self._pg.nonblocking = 1
        self.heard = time.monotonic()
        """When the server last sent anything."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def backend_pid(self) -> int:
        return self._pg.backend_pid

    def close(self) -> None:
        self._wire.close()
        self._pg.finish()

    def identify(self) -> IdentifiedSystem:
        system, timeline, wal_end, *_ = self._query("IDENTIFY_SYSTEM", "identifying the server")
        return IdentifiedSystem(system, int(timeline), Lsn.parse(wal_end))

    def timeline_history(self, timeline: int) -> str:
        """The timelines before this one, a line each: its number, the LSN at which it was left, and why."""
        return self._query(f"TIMELINE_HISTORY {timeline}", "reading the history of its timeline")[1]

    def create_exported_slot(self, name: SlotName, stop: threading.Event, waiting: Callable[[], None]) -> ExportedSlot:
        """Creates a temporary slot and exports its snapshot; waits for every open writer of the server, by design.

        `waiting` is called about once a second meanwhile. Raises InterruptedError when `stop` is set."""
        command = f'CREATE_REPLICATION_SLOT "{name}" TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT'
        row = self._query(command, _SLOT, stop, waiting)
        return ExportedSlot(Lsn.parse(row[1]), row[2])

    def create_slot(
        self, name: SlotName, failover: Failover, stop: threading.Event, waiting: Callable[[], None]
    ) -> Lsn:
        options = "(SNAPSHOT 'nothing', FAILOVER)" if failover is Failover.SLOT else "NOEXPORT_SNAPSHOT"
        command = f'CREATE_REPLICATION_SLOT "{name}" LOGICAL pgoutput {options}'
        return Lsn.parse(self._query(command, _SLOT, stop, waiting)[1])

    def let_slot_fail_over(self, name: SlotName) -> None:
        """Allows standbys to keep this slot in step. Raises SlotInUse while somebody reads from it."""
        self._query(f'ALTER_REPLICATION_SLOT "{name}" (FAILOVER)', "changing the replication slot")

    def start(self, slot: SlotName, source: SourceConfig, lsn: Lsn) -> None:
        """Begins to stream the transactions with commit LSN >= lsn. Raises SlotInUse while another reads."""
        names = source.publication.replace('"', '""').replace("'", "''")
        options = f"proto_version '1', publication_names '\"{names}\"', messages 'true'"
        if source.origin is Origins.NONE:
            options += ", origin 'none'"
        try:
            self._wire.query(f'START_REPLICATION SLOT "{slot}" LOGICAL {lsn} ({options})'.encode())
            until = time.monotonic() + self._patience
            while self._inbox.take_control() != _COPY_BOTH:
                self._inbox.receive(_START_SECONDS)
                self._require_answer_by(until, "starting to stream")
            self._wire = stream_wire(self._wire)
            self._inbox.go_on_with(self._wire)
        except psycopg.Error as error:
            raise source_error(error, "starting to stream") from error

    def read(self, pump: Pump, timeout: float) -> Frame | None:
        """Runs what has come through the pump, after a wait of at most `timeout` seconds if nothing has.

        Gives the frame at which the pump stopped, if it left one; it is valid until the next read."""
        inbox = self._inbox
        try:
            if inbox.has_message():
                self.read_ahead()
            elif inbox.receive(timeout):
                self.heard = time.monotonic()
            try:
                left = pump.run(inbox.next(_MANY_BYTES))
            finally:
                inbox.use(pump.used)
            kind = inbox.take_control() if left is None else None
            if kind in _ENDS:
                raise SourceUnreachable("Postgres ended the stream.")
            if kind not in _PASSED:
                raise psycopg.OperationalError("unexpected message from the server in the stream")
        except psycopg.Error as error:
            raise source_error(error, "streaming") from error
        return None if left is None else decode_frame(left)

    def read_ahead(self) -> None:
        """Takes in what has come while the stream waits for something else, so that the walsender need not wait, too.
        An error is met again by the next `read`."""
        with suppress(psycopg.Error):
            if self._inbox.receive_ahead():
                self.heard = time.monotonic()

    def report(self, flushed: Lsn, *, ask_for_reply: bool = False) -> None:
        """Sends a standby status update: WAL before `flushed` may go."""
        update = StatusUpdate(flushed, flushed, flushed, time.time_ns() // 1000, ask_for_reply)
        try:
            failpoint("status.reporting", psycopg.OperationalError)
            self._wire.send(encode_status_update(update))
            failpoint("status.reported", psycopg.OperationalError)
        except psycopg.Error as error:
            raise source_error(error, "reporting status") from error

    def _require_answer_by(self, until: float, what: str) -> None:
        if time.monotonic() > until:
            raise SourceUnreachable(f"Postgres has not answered for {self._patience:g} s while {what}.")

    def _query(
        self,
        command: str,
        what: str,
        stop: threading.Event | None = None,
        waiting: Callable[[], None] = lambda: None,
    ) -> list[str]:
        self._pg.send_query(command.encode())
        while self._pg.flush() == 1:
            writable(self._pg.socket, 1.0)
        until = time.monotonic() + self._patience
        while self._pg.is_busy():
            if stop is None:
                self._require_answer_by(until, what)
            elif stop.is_set():
                raise InterruptedError
            if readable(self._pg.socket, 1.0):
                self._pg.consume_input()
            else:
                waiting()
        result = self._pg.get_result()
        if result is None:
            raise SourceUnreachable(f"Postgres closed the connection while {what}.")
        if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            raise source_error(error_from_result(result), what)
        row = [(result.get_value(0, column) or b"").decode() for column in range(result.nfields)]
        while self._pg.get_result() is not None:
            pass
        return row
