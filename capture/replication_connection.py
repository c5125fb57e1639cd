"""The walsender protocol over psycopg's libpq layer: create a slot, start, read frames, report status.

Bytes in, frames out, most of them straight into a pump. A read never blocks longer than it is told to; a lost
connection is SourceUnreachable.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Self

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from capture.errors import SlotInUse, SourceRefused, SourceUnreachable, source_error
from capture.pgoutput.stream import Frame, StatusUpdate, decode_frame, encode_status_update
from capture.transcode.contract import Pump
from schemas.identifiers import PublicationName, SlotName
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
_IN_USE = "55006"
_FRAMES = 1000
_BUSY_SECONDS = 0.005
_UNIX_SECONDS = 0.001
_MANY_BYTES = 64 * 1024


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
    }
    options = f"{given.get('options', '')} {settings}".strip()
    return make_conninfo("", **{**defaults, **given, **further, "options": options, "client_encoding": "UTF8"})


class ExportedSlot(NamedTuple):
    """A temporary slot: its consistent point, and the snapshot that shows exactly what committed before it."""

    lsn: Lsn
    snapshot: str


class ReplicationConnection:
    """One walsender session."""

    def __init__(self, dsn: str) -> None:
        self._pg = pq.PGconn.connect(session_dsn(dsn, replication="database").encode())
        if self._pg.status != pq.ConnStatus.OK:
            reason = self._pg.get_error_message().strip().splitlines()[0]
            self._pg.finish()
            raise SourceUnreachable(f"Postgres took no replication connection: {reason}")
        self._pg.nonblocking = 1
        self._socket = socket.socket(fileno=os.dup(self._pg.socket))
        self._woken = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()
        self._pg.finish()

    def create_exported_slot(self, name: SlotName, stop: threading.Event, waiting: Callable[[], None]) -> ExportedSlot:
        """Creates a temporary slot and exports its snapshot; waits for every open writer of the server, by design.

        `waiting` is called about once a second meanwhile. Raises InterruptedError when `stop` is set."""
        command = f'CREATE_REPLICATION_SLOT "{name}" TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT'
        row = self._query(command, stop, waiting)
        return ExportedSlot(Lsn.parse(row[1]), row[2])

    def create_slot(self, name: SlotName, stop: threading.Event, waiting: Callable[[], None]) -> Lsn:
        command = f'CREATE_REPLICATION_SLOT "{name}" LOGICAL pgoutput NOEXPORT_SNAPSHOT'
        return Lsn.parse(self._query(command, stop, waiting)[1])

    def start(self, slot: SlotName, publication: PublicationName, lsn: Lsn) -> None:
        """Begins to stream the transactions with commit LSN >= lsn. Raises SlotInUse while another reads."""
        names = publication.replace('"', '""').replace("'", "''")
        options = f"proto_version '1', publication_names '\"{names}\"', messages 'true'"
        self._pg.nonblocking = 0
        result = self._pg.exec_(f'START_REPLICATION SLOT "{slot}" LOGICAL {lsn} ({options})'.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise self._refused(result, "starting to stream")
        self._pg.nonblocking = 1

    def read(self, pump: Pump, timeout: float) -> Frame | None:
        """Runs what has come through the pump, after a wait of at most `timeout` seconds if nothing has.

        Gives the frame at which the pump stopped, if it left one."""
        try:
            left = pump.run(self._pg.get_copy_data, _FRAMES)
            if left is not None and left[0] == 0:
                self._wait(timeout)
                self._pg.consume_input()
                left = pump.run(self._pg.get_copy_data, _FRAMES)
        except psycopg.Error as error:
            raise source_error(error, "streaming") from error
        if left is None or left[0] == 0:
            return None
        if left[0] > 0:
            return decode_frame(left[1])
        raise self._ended()

    def _wait(self, timeout: float) -> None:
        """Returns when there is something to read, or after the timeout (seconds).

        The walsender sends each row by itself, and to be woken for each costs both sides more than the row does. So
        when the last wake-up was a moment ago, the next is put off, by 5 ms at most. After a pause the first bytes wake
        us at once, but what of their transaction comes behind them may wait so long."""
        if self._readable(0):
            return
        if time.monotonic() - self._woken < _BUSY_SECONDS:
            self._let_more_come()
        self._readable(timeout)
        self._woken = time.monotonic()

    def _let_more_come(self) -> None:
        """Until so many bytes wait, where the socket can tell; a unix socket is full in about a millisecond."""
        if self._socket.family == socket.AF_UNIX:
            time.sleep(_UNIX_SECONDS)
            return
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _MANY_BYTES)
        self._readable(_BUSY_SECONDS)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)

    def _readable(self, timeout: float) -> bool:
        return bool(select.select([self._socket], [], [], timeout)[0])

    def report(self, flushed: Lsn, *, ask_for_reply: bool = False) -> None:
        """Sends a standby status update: WAL before `flushed` may go."""
        update = StatusUpdate(flushed, flushed, flushed, time.time_ns() // 1000, ask_for_reply)
        try:
            self._pg.put_copy_data(encode_status_update(update))
            while self._pg.flush() == 1:
                select.select([], [self._pg.socket], [], 1.0)
        except psycopg.Error as error:
            raise source_error(error, "reporting status") from error

    def _query(self, command: str, stop: threading.Event, waiting: Callable[[], None]) -> list[str]:
        self._pg.send_query(command.encode())
        while self._pg.flush() == 1:
            select.select([], [self._pg.socket], [], 1.0)
        while self._pg.is_busy():
            if stop.is_set():
                raise InterruptedError
            if select.select([self._pg.socket], [], [], 1.0)[0]:
                self._pg.consume_input()
            else:
                waiting()
        result = self._pg.get_result()
        if result is None or result.status != pq.ExecStatus.TUPLES_OK:
            raise self._refused(result, "creating a replication slot")
        row = [(result.get_value(0, column) or b"").decode() for column in range(result.nfields)]
        while self._pg.get_result() is not None:
            pass
        return row

    def _ended(self) -> Exception:
        result = self._pg.get_result()
        if result is None or result.status == pq.ExecStatus.COMMAND_OK:
            return SourceUnreachable("Postgres ended the stream.")
        return SourceUnreachable(f"Postgres ended the stream: {_message(result)}")

    def _refused(self, result: pq.abc.PGresult | None, what: str) -> Exception:
        if result is None:
            return SourceUnreachable(f"Postgres closed the connection while {what}.")
        if result.error_field(pq.DiagnosticField.SQLSTATE) == _IN_USE.encode():
            return SlotInUse(f"The slot is in use: {_message(result)}")
        return SourceRefused(f"Postgres refused {what}: {_message(result)}")


def _message(result: pq.abc.PGresult) -> str:
    return (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"no reason given").decode("utf-8", "replace")
