"""A COPY command in, records in batches out: many rows a call, and no more in memory than a batch or one row.

libpq hands out a row a call, each in memory of its own, which costs more than to transcode it. A connection that is not
encrypted is therefore read from its socket: when it is idle, libpq holds none of its bytes, and the protocol is plain
messages of a letter, a length and a body. An encrypted one is read through libpq.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

import psycopg
from psycopg import pq
from psycopg.errors import error_from_result, lookup

from capture.producer import Records
from capture.transcode.contract import TableTranscoder
from capture.transcode.reference import Origin


class Batch(NamedTuple):
    """Some records, and how many bytes their values have."""

    records: Records
    size: int


_CHUNK = 256 * 1024
_HEADER = struct.Struct("!ci")
_LENGTH = 4
_LARGEST = 1 << 30
"""No message of Postgres is larger."""
_PATIENCE_SECONDS = 1.0
_PASSED = frozenset(b"HcCNSA")
"""CopyOutResponse, CopyDone, CommandComplete, and what may come at any time: notices and settings."""


def copied_rows(
    session: psycopg.Connection, command: bytes, transcoder: TableTranscoder, origin: Origin, alive: Callable[[], None]
) -> Iterator[Batch]:
    """The rows that COPY gives, each at the next ordinal. `alive` is called while Postgres makes us wait.

    A session that raised an error here is of no more use."""
    if _encrypted(session):
        return _through_libpq(session.pgconn, command, transcoder, origin)
    return _from_socket(session.pgconn, command, transcoder, origin, alive)


def _encrypted(session: psycopg.Connection) -> bool:
    if session.pgconn.ssl_in_use:
        return True
    row = session.execute("select encrypted from pg_stat_gssapi where pid = pg_backend_pid()").fetchone()
    return row is None or row[0] is not False


def _through_libpq(pg: pq.abc.PGconn, command: bytes, transcoder: TableTranscoder, origin: Origin) -> Iterator[Batch]:
    result: pq.abc.PGresult | None = pg.exec_(command)
    records: Records = []
    size = 0
    while result is not None and result.status == pq.ExecStatus.COPY_OUT:
        length, line = pg.get_copy_data(0)
        if length < 0:
            result = pg.get_result()
            continue
        key, value = transcoder.copy_row(line, origin)
        origin.ordinal += 1
        records.append({"key": key, "value": value})
        size += len(value)
        if size >= _CHUNK:
            yield Batch(records, size)
            records, size = [], 0
    while result is not None:
        if result.status != pq.ExecStatus.COMMAND_OK:
            raise error_from_result(result)
        result = pg.get_result()
    yield Batch(records, size)


def _from_socket(
    pg: pq.abc.PGconn, command: bytes, transcoder: TableTranscoder, origin: Origin, alive: Callable[[], None]
) -> Iterator[Batch]:
    with socket.socket(fileno=os.dup(pg.socket)) as wire:
        wire.settimeout(_PATIENCE_SECONDS)
        _send(wire, _HEADER.pack(b"Q", len(command) + 1 + _LENGTH) + command + b"\0")
        buffer, filled, ended = bytearray(_CHUNK), 0, False
        while not ended:
            filled += _receive(wire, memoryview(buffer)[filled:], alive)
            with memoryview(buffer)[:filled] as seen:
                batch, used, ended = _read(seen, transcoder, origin)
                rest = bytes(seen[used:])
            if batch.records:
                yield batch
            buffer, filled = _room_for(rest, buffer), len(rest)


def _send(wire: socket.socket, message: bytes) -> None:
    try:
        wire.sendall(message)
    except OSError as error:
        raise psycopg.OperationalError(f"the connection failed before COPY: {error.strerror}") from error


def _receive(wire: socket.socket, room: memoryview, alive: Callable[[], None]) -> int:
    while True:
        try:
            size = wire.recv_into(room)
        except TimeoutError:
            alive()
        except OSError as error:
            raise psycopg.OperationalError(f"the connection failed during COPY: {error.strerror}") from error
        else:
            if size == 0:
                raise psycopg.OperationalError("the server closed the connection during COPY")
            return size


def _read(seen: memoryview, transcoder: TableTranscoder, origin: Origin) -> tuple[Batch, int, bool]:
    """The rows, how many bytes were whole messages, and whether the last one said that Postgres is ready again."""
    records: Records = []
    used, size = transcoder.copy_rows(seen, origin, records)
    while len(seen) - used >= _HEADER.size:
        kind, length = _HEADER.unpack_from(seen, used)
        end = used + 1 + length
        if not _LENGTH <= length <= _LARGEST:
            raise psycopg.OperationalError("lost synchronisation with the server during COPY")
        if end > len(seen):
            break
        if kind == b"Z":
            return Batch(records, size), end, True
        if kind == b"E":
            raise _server_error(bytes(seen[used + _HEADER.size : end]))
        if kind[0] not in _PASSED:
            raise psycopg.OperationalError("unexpected message from the server during COPY")
        read, more = transcoder.copy_rows(seen[end:], origin, records)
        used, size = end + read, size + more
    return Batch(records, size), used, False


def _room_for(rest: bytes, buffer: bytearray) -> bytearray:
    """A buffer that begins with `rest` and has room for the message that it begins; a large one is not kept."""
    needed = _CHUNK
    if len(rest) >= _HEADER.size:
        needed = max(_CHUNK, 1 + _HEADER.unpack_from(rest)[1])
    if len(buffer) != needed:
        buffer = bytearray(needed)
    buffer[: len(rest)] = rest
    return buffer


def _server_error(body: bytes) -> psycopg.Error:
    fields = {field[:1]: field[1:].decode("utf-8", "replace") for field in body.split(b"\0") if field}
    try:
        kind = lookup(fields.get(b"C", ""))
    except KeyError:
        kind = psycopg.DatabaseError
    return kind(fields.get(b"M", "no reason given"))
