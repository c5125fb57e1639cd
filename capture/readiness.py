"""Whether a socket can be read or written, by poll: select raises a bare error where a process has many open files."""

from __future__ import annotations

import select
from typing import Protocol


class _Socket(Protocol):
    def fileno(self) -> int: ...


def readable(sock: int | _Socket, seconds: float | None) -> bool:
    """Waits at most so long, None: for as long as it takes. True also where its other end is gone."""
    return _ready(sock, select.POLLIN, seconds)


def writable(sock: int | _Socket, seconds: float | None) -> bool:
    return _ready(sock, select.POLLOUT, seconds)


def _ready(sock: int | _Socket, event: int, seconds: float | None) -> bool:
    poll = select.poll()
    poll.register(sock, event)
    return bool(poll.poll(None if seconds is None else seconds * 1000))
