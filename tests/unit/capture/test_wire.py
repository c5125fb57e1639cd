"""Messages of the server over a real socket: whole in the inbox however they arrive, errors told as the server's."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import pq

from capture.wire import Inbox, PlainWire

CHUNK = 256 * 1024


@dataclass
class Connection:
    """As much of libpq's connection as a wire uses."""

    socket: int


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, PlainWire]]:
    server, client = socket.socketpair()
    with server, client:
        wire = PlainWire(cast("pq.abc.PGconn", Connection(client.fileno())))
        yield server, wire
        wire.close()


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def received(server: socket.socket, inbox: Inbox, sent: bytes) -> None:
    """Sends in pieces that fit into the socket, and takes in each."""
    for start in range(0, len(sent), 50_000):
        server.sendall(sent[start : start + 50_000])
        assert inbox.receive(1.0)


@given(st.lists(st.binary(max_size=300), max_size=8), st.lists(st.integers(1, 40), min_size=1))
def test_messages_are_whole_however_they_are_cut(bodies: list[bytes], pieces: list[int]) -> None:
    server, client = socket.socketpair()
    with server, client:
        wire = PlainWire(cast("pq.abc.PGconn", Connection(client.fileno())))
        inbox, found, left = Inbox(wire), list[bytes](), b"".join(message(b"d", body) for body in bodies)
        turn = 0
        while left:
            size = pieces[turn % len(pieces)]
            server.sendall(left[:size])
            left, turn = left[size:], turn + 1
            assert inbox.receive(1.0)
            while inbox.has_message():
                unread = bytes(inbox.unread())
                length = 1 + struct.unpack_from("!i", unread, 1)[0]
                found.append(unread[5:length])
                inbox.use(length)
        wire.close()

    assert found == bodies


def test_a_message_larger_than_a_chunk_is_whole_and_its_room_is_given_back(
    ends: tuple[socket.socket, PlainWire],
) -> None:
    server, wire = ends
    inbox, large = Inbox(wire), message(b"d", bytes(3 * CHUNK))

    received(server, inbox, large)
    while len(inbox.unread()) < len(large):
        assert inbox.receive(1.0)

    assert inbox.unread() == large
    inbox.use(len(large))
    received(server, inbox, message(b"d", b"small"))
    assert inbox.unread() == message(b"d", b"small")
    assert len(inbox._buffer) == CHUNK


def test_other_messages_are_told_by_their_letter_and_data_is_left(ends: tuple[socket.socket, PlainWire]) -> None:
    server, wire = ends
    inbox = Inbox(wire)

    received(server, inbox, message(b"W", b"\0\0\0") + message(b"d", b"row") + message(b"c", b"")[:3])

    assert inbox.take_control() == b"W"
    assert inbox.take_control() is None, "data comes next"
    inbox.use(len(message(b"d", b"row")))
    assert inbox.take_control() is None, "the next is not whole"
    received(server, inbox, message(b"c", b"")[3:])
    assert inbox.take_control() == b"c"


def test_an_error_of_the_server_keeps_its_state_and_its_first_line(ends: tuple[socket.socket, PlainWire]) -> None:
    server, wire = ends
    inbox = Inbox(wire)
    received(server, inbox, message(b"E", b"SERROR\0C55006\0Mreplication slot is active\0\0"))

    with pytest.raises(psycopg.errors.ObjectInUse, match="replication slot is active"):
        inbox.take_control()


def test_an_error_without_a_known_state_is_still_an_error(ends: tuple[socket.socket, PlainWire]) -> None:
    server, wire = ends
    inbox = Inbox(wire)
    received(server, inbox, message(b"E", b"C?????\0\0"))

    with pytest.raises(psycopg.DatabaseError, match="no reason given"):
        inbox.take_control()


@pytest.mark.parametrize("length", [3, -1, (1 << 30) + 1])
def test_a_length_that_no_message_has_is_refused(ends: tuple[socket.socket, PlainWire], length: int) -> None:
    server, wire = ends
    inbox = Inbox(wire)
    received(server, inbox, b"d" + struct.pack("!i", length))

    with pytest.raises(psycopg.OperationalError, match="lost synchronisation"):
        inbox.has_message()


def test_nothing_that_came_is_no_error_and_an_end_is_one(ends: tuple[socket.socket, PlainWire]) -> None:
    server, wire = ends
    inbox = Inbox(wire)

    assert not inbox.receive(0.01)
    server.close()
    with pytest.raises(psycopg.OperationalError, match="closed the connection"):
        inbox.receive(1.0)


def test_a_command_and_data_are_sent_as_messages(ends: tuple[socket.socket, PlainWire]) -> None:
    server, wire = ends
    wire.query(b"COPY t TO STDOUT")
    wire.send(b"status")

    assert server.recv(1000) == message(b"Q", b"COPY t TO STDOUT\0") + message(b"d", b"status")
