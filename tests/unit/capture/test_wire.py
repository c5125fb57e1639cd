"""Messages of the server over a real socket: whole in the inbox however they arrive, errors told as the server's."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from random import Random

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture.wire import Inbox, PlainWire

CHUNK = 256 * 1024


def nonblocking(client: socket.socket) -> socket.socket:
    own = client.dup()
    own.setblocking(False)
    return own


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, PlainWire]]:
    server, client = socket.socketpair()
    with server, client:
        wire = PlainWire(nonblocking(client))
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
        wire = PlainWire(nonblocking(client))
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


def test_what_comes_ahead_leaves_what_is_unread_in_its_place(ends: tuple[socket.socket, PlainWire]) -> None:
    server, wire = ends
    inbox, first, second = Inbox(wire), message(b"d", b"first"), message(b"d", b"second")
    received(server, inbox, first)
    held = inbox.next(1)

    server.sendall(second)
    assert inbox.receive_ahead()

    assert held == first, "a message is given whole, and stays valid"
    assert inbox.unread() == first + second


def test_an_inbox_that_is_full_takes_nothing_ahead_until_it_is_used(ends: tuple[socket.socket, PlainWire]) -> None:
    server, wire = ends
    inbox, one = Inbox(wire), message(b"d", bytes(CHUNK - 5))
    received(server, inbox, one)
    while len(inbox.unread()) < len(one):
        assert inbox.receive(1.0)
    server.sendall(message(b"d", b"next"))

    assert not inbox.receive_ahead()

    inbox.use(len(one))
    assert inbox.receive(1.0)
    assert inbox.unread() == message(b"d", b"next")


@pytest.mark.parametrize("seed", range(20))
def test_messages_are_whole_and_in_order_whether_they_came_ahead_or_not(seed: int) -> None:
    random = Random(seed)  # noqa: S311 -- no secret
    bodies = [random.randbytes(random.choice([0, 10, 5_000, 150_000])) for _ in range(30)]
    server, client = socket.socketpair()
    with server, client:
        wire = PlainWire(nonblocking(client))
        inbox, found, left = Inbox(wire, 2 * CHUNK), list[bytes](), b"".join(message(b"d", each) for each in bodies)
        while left or inbox.has_message():
            piece, left = left[:60_000], left[60_000:]
            server.sendall(piece)
            while piece and not (inbox.receive_ahead() if inbox.has_message() else inbox.receive(1.0)):
                found.append(_taken(inbox))  # no room ahead: some of it is used first
            if inbox.has_message() and (not left or random.random() < 0.5):
                found.append(_taken(inbox))
        wire.close()

    assert found == bodies


def _taken(inbox: Inbox) -> bytes:
    begun = bytes(inbox.next(1))
    inbox.use(len(begun))
    return begun[5:]


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
