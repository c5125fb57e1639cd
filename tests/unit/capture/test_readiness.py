"""Waiting for a socket, whatever its number."""

from __future__ import annotations

import fcntl
import resource
import socket
from collections.abc import Iterator

import pytest

from capture.readiness import readable, writable

ABOVE_SELECT = 1100
"""select takes descriptors below 1,024."""


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The first with a number that is too large for select."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * ABOVE_SELECT), hard))
    low, other = socket.socketpair()
    high = socket.socket(fileno=fcntl.fcntl(low.fileno(), fcntl.F_DUPFD_CLOEXEC, ABOVE_SELECT))
    low.close()
    with high, other:
        yield high, other
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_socket_with_a_high_number_is_waited_for(pair: tuple[socket.socket, socket.socket]) -> None:
    high, other = pair
    assert high.fileno() >= ABOVE_SELECT
    assert not readable(high, 0.0)
    assert writable(high.fileno(), 0.0)

    other.send(b"x")

    assert readable(high, None)


def test_a_socket_whose_other_end_is_gone_can_be_read(pair: tuple[socket.socket, socket.socket]) -> None:
    high, other = pair

    other.close()

    assert readable(high, None)
