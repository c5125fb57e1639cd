"""The bytes of a stream over real sockets: all of them, in order, however fast they come; and the end of the stream."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from random import Random

import psycopg
import pytest

from capture.stream_wire import AheadWire, LowWaterWire, ReadAhead, stream_wire
from capture.wire import PlainWire


def a_unix_connection() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()


def a_tcp_connection() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        return listening.accept()[0], client


@pytest.fixture(params=[a_unix_connection, a_tcp_connection])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, PlainWire]]:
    server, client = request.param()
    client.setblocking(False)
    wire = stream_wire(PlainWire(client))
    assert isinstance(wire, PlainWire)
    yield server, wire
    wire.close()
    server.close()


def everything(wire: PlainWire, size: int) -> bytes:
    found, room = bytearray(), memoryview(bytearray(100_000))
    while len(found) < size:
        got = wire.receive(room)
        found += room[:got]
        if not got:
            assert wire.wait(10.0)
    return bytes(found)


@pytest.mark.skipif(ReadAhead is None, reason="the compiled reader is not installed")
def test_a_thread_reads_unix_sockets_and_the_kernel_collects_what_comes_over_tcp() -> None:
    for connect, kind in ((a_unix_connection, AheadWire), (a_tcp_connection, LowWaterWire)):
        server, client = connect()
        with server:
            wire = stream_wire(PlainWire(client))
            assert type(wire) is kind
            wire.close()


@pytest.mark.parametrize("seed", range(5))
def test_all_bytes_arrive_in_order_also_more_than_the_ring_holds(
    ends: tuple[socket.socket, PlainWire], seed: int
) -> None:
    server, wire = ends
    random = Random(seed)  # noqa: S311 -- no secret
    pieces = [random.randbytes(random.choice([1, 200, 5_000, 1_000_000])) for _ in range(30)]
    sent = b"".join(pieces)

    def send() -> None:
        for piece in pieces:
            server.sendall(piece)

    sender = threading.Thread(target=send, name="sender")
    sender.start()
    found = everything(wire, len(sent))
    sender.join()

    assert found == sent


@pytest.mark.skipif(ReadAhead is None, reason="the compiled reader is not installed")
def test_a_server_is_not_held_back_by_somebody_who_does_not_use_what_came() -> None:
    server, client = a_unix_connection()
    server.settimeout(10.0)
    client.setblocking(False)
    wire = AheadWire(client)

    server.sendall(bytes(3_000_000))

    assert everything(wire, 3_000_000) == bytes(3_000_000)
    wire.close()
    server.close()


def test_first_bytes_wake_who_waits_and_nothing_comes_of_nothing(ends: tuple[socket.socket, PlainWire]) -> None:
    server, wire = ends

    assert not wire.wait(0.01)
    threading.Timer(0.05, lambda: server.sendall(b"row")).start()

    assert wire.wait(10.0)
    assert everything(wire, 3) == b"row"
    assert not wire.wait(0.01)


def test_the_end_is_told_behind_the_last_byte(ends: tuple[socket.socket, PlainWire]) -> None:
    server, wire = ends
    server.sendall(b"last words")
    server.close()

    assert everything(wire, 10) == b"last words"
    assert wire.wait(10.0)
    with pytest.raises(psycopg.OperationalError, match="clos"):
        wire.receive(memoryview(bytearray(10)))
