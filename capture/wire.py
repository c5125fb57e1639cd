"""What the server sends in answer to a COPY or a START_REPLICATION: its messages, many at a time.

libpq hands out one message a call, each in memory of its own, which costs more than to transcode it. A connection that
is not encrypted is therefore read from its socket: while it is idle libpq holds none of its bytes, and the protocol is
plain messages of a letter, a length and a body. An encrypted one is read through libpq and looks the same from here.
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import closing, suppress
from typing import Protocol

import psycopg
from psycopg import pq
from psycopg.errors import error_from_result, lookup

from capture.readiness import readable, writable

_CHUNK = 256 * 1024
_HEADER = struct.Struct("!ci")
_LENGTH = 4
_LARGEST = 1 << 30
"""No message of Postgres is larger."""
_COPY_DATA = b"d"
_PATIENCE_SECONDS = 1.0


class Wire(Protocol):
    """The bytes of one connection. Errors are psycopg's; after one the connection is of no more use."""

    def query(self, command: bytes) -> None:
        """Sends a command whose answer is a COPY, on a session that is idle."""

    def send(self, data: bytes) -> None:
        """Sends one CopyData message."""

    def receive(self, room: memoryview) -> int:
        """How many bytes were put into `room`; 0: nothing has come yet. Never waits."""

    def wait(self, seconds: float) -> bool:
        """Whether something has come; waits for it, at most so long."""

    def close(self) -> None:
        """The connection stays libpq's."""


def wire_of(pg: pq.abc.PGconn) -> Wire:
    return LibpqWire(pg) if encrypted(pg) else PlainWire(socket_of(pg))


def encrypted(pg: pq.abc.PGconn) -> bool:
    if pg.ssl_in_use:
        return True
    result = pg.exec_(b"select encrypted from pg_stat_gssapi where pid = pg_backend_pid()")
    return result.status != pq.ExecStatus.TUPLES_OK or result.get_value(0, 0) != b"f"


class PlainWire:
    """The socket itself, which it closes."""

    def __init__(self, own: socket.socket) -> None:
        self.socket = own

    def close(self) -> None:
        self.socket.close()

    def query(self, command: bytes) -> None:
        self._send(b"Q", command + b"\0")

    def send(self, data: bytes) -> None:
        self._send(_COPY_DATA, data)

    def receive(self, room: memoryview) -> int:
        try:
            size = self.socket.recv_into(room)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise lost(error) from error
        if size == 0:
            raise psycopg.OperationalError("the server closed the connection")
        return size

    def wait(self, seconds: float) -> bool:
        return readable(self.socket, seconds)

    def _send(self, kind: bytes, body: bytes) -> None:
        message = memoryview(_HEADER.pack(kind, len(body) + _LENGTH) + body)
        while message:
            try:
                message = message[self.socket.send(message) :]
            except BlockingIOError:
                writable(self.socket, _PATIENCE_SECONDS)
            except OSError as error:
                raise lost(error) from error


class LibpqWire:
    """Through libpq, which decrypts; its frames are put back into messages."""

    def __init__(self, pg: pq.abc.PGconn) -> None:
        self.socket = socket_of(pg)
        self._pg = pg
        self._waiting = bytearray()

    def close(self) -> None:
        self.socket.close()

    def query(self, command: bytes) -> None:
        self._pg.nonblocking = 0
        result = self._pg.exec_(command)
        if result.status not in (pq.ExecStatus.COPY_BOTH, pq.ExecStatus.COPY_OUT):
            raise error_from_result(result)
        self._pg.nonblocking = 1
        self._put(b"W" if result.status == pq.ExecStatus.COPY_BOTH else b"H", b"")

    def send(self, data: bytes) -> None:
        self._pg.put_copy_data(data)
        while self._pg.flush() == 1:
            writable(self.socket, _PATIENCE_SECONDS)

    def receive(self, room: memoryview) -> int:
        if not self._waiting:
            self._fetch()
        size = min(len(room), len(self._waiting))
        room[:size] = self._waiting[:size]
        del self._waiting[:size]
        return size

    def wait(self, seconds: float) -> bool:
        return readable(self.socket, seconds)

    def _fetch(self) -> None:
        self._pg.consume_input()
        while len(self._waiting) < _CHUNK:
            size, frame = self._pg.get_copy_data(1)
            if size > 0:
                self._put(_COPY_DATA, frame)
            elif size < 0:
                self._end()
                return
            else:
                return

    def _end(self) -> None:
        while (result := self._pg.get_result()) is not None:
            if result.status != pq.ExecStatus.COMMAND_OK:
                raise error_from_result(result)
        self._put(b"Z", b"I")

    def _put(self, kind: bytes, body: memoryview | bytes) -> None:
        self._waiting += _HEADER.pack(kind, len(body) + _LENGTH)
        self._waiting += body


class Inbox:
    """What has come over a wire and is not used yet. A message is whole in it, however large it is.

    `room` is how many bytes it takes in before they are used, a larger message aside."""

    def __init__(self, wire: Wire, room: int = _CHUNK) -> None:
        self._wire = wire
        self._room = room
        self._buffer = bytearray(room)
        self._begin = self._end = 0

    def go_on_with(self, wire: Wire) -> None:
        """What comes from now on comes over this wire."""
        self._wire = wire

    def unread(self) -> memoryview:
        """Valid until the next `receive`."""
        return memoryview(self._buffer)[self._begin : self._end]

    def next(self, size: int) -> memoryview:
        """The first so many bytes of `unread`, or more, so that a message that is whole there is whole here."""
        if self.has_message():
            size = max(size, self._needed())
        return self.unread()[:size]

    def use(self, size: int) -> None:
        """So many bytes of `unread` are done with."""
        self._begin += size

    def has_message(self) -> bool:
        there = self._end - self._begin
        return there >= _HEADER.size and there >= self._needed()

    def receive(self, seconds: float) -> bool:
        """Takes in what has come, after a wait of at most so long if nothing has; False if nothing did."""
        self._make_room()
        return self._take_in() or (self._wire.wait(seconds) and self._take_in())

    def receive_ahead(self) -> bool:
        """Takes in what has come behind what is unread, which stays where it is; never waits."""
        return self._end < len(self._buffer) and self._take_in()

    def take_control(self) -> bytes | None:
        """Uses the next message if it is whole and not CopyData, and gives its letter. Raises the server's error."""
        if not self.has_message() or self._buffer[self._begin] == _COPY_DATA[0]:
            return None
        with self.unread() as unread:
            kind, size = bytes(unread[:1]), self._needed()
            self.use(size)
            if kind == b"E":
                raise _server_error(bytes(unread[_HEADER.size : size]))
        return kind

    def _take_in(self) -> bool:
        with memoryview(self._buffer)[self._end : self._end + _CHUNK] as room:
            size = self._wire.receive(room)
        self._end += size
        return size > 0

    def _needed(self) -> int:
        """How many bytes the next message has."""
        length = _HEADER.unpack_from(self._buffer, self._begin)[1]
        if not _LENGTH <= length <= _LARGEST:
            raise psycopg.OperationalError("lost synchronisation with the server")
        return 1 + int(length)

    def _make_room(self) -> None:
        """Moves what is left to the front, with room for the message that it begins; a large room is not kept."""
        there = self._end - self._begin
        needed = max(_CHUNK, self._needed()) if there >= _HEADER.size else _CHUNK
        size = max(self._room, needed)
        if size - self._begin < max(needed, size // 2) or len(self._buffer) != size:
            rest = self._buffer[self._begin : self._end]
            if len(self._buffer) != size:
                self._buffer = bytearray(size)
            self._buffer[:there] = rest
            self._begin, self._end = 0, there


def socket_of(pg: pq.abc.PGconn) -> socket.socket:
    """The same socket, to be closed apart from libpq's."""
    own = socket.socket(fileno=os.dup(pg.socket))
    own.setblocking(False)
    return own


def shut_down(session: psycopg.Connection) -> None:
    """Whoever waits for the server on this session, in another thread, finds the connection lost."""
    with suppress(psycopg.Error, OSError), closing(socket_of(session.pgconn)) as own:
        own.shutdown(socket.SHUT_RDWR)


def lost(error: OSError) -> psycopg.OperationalError:
    return psycopg.OperationalError(f"the connection failed: {error.strerror}")


def _server_error(body: bytes) -> psycopg.Error:
    fields = {field[:1]: field[1:].decode("utf-8", "replace") for field in body.split(b"\0") if field}
    try:
        kind = lookup(fields.get(b"C", ""))
    except KeyError:
        kind = psycopg.DatabaseError
    return kind(fields.get(b"M", "no reason given"))
