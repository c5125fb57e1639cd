"""How the bytes of a walsender are read: it sends each row by itself, and to be woken for each, or to read a few at a
time, costs both sides more than the rows do. So while rows come more are let come first, for 5 ms at most; after a
pause the first bytes are there at once.
"""

from __future__ import annotations

import socket
import threading
import time

from capture.wire import PlainWire, Wire, lost

try:
    from capture.read_ahead import ReadAhead
except ImportError:  # an optional extension
    ReadAhead = None  # type: ignore[assignment,misc]

_AHEAD_BYTES = 4 * 1024**2
_BUSY_SECONDS = 0.005
_MANY_BYTES = 64 * 1024


def stream_wire(wire: Wire) -> Wire:
    """The wire for a stream that has begun on this one, which is not used any more."""
    if not isinstance(wire, PlainWire):
        return wire
    if wire.socket.family == socket.AF_UNIX and ReadAhead is not None:
        return AheadWire(wire.socket)
    return LowWaterWire(wire.socket)


class AheadWire(PlainWire):
    """For unix sockets, which are full after two hundred rows: a thread reads while others use what it read.

    Over TCP, whose buffers are larger, that would only make each row dearer for the walsender."""

    def __init__(self, own: socket.socket) -> None:
        super().__init__(own)
        self._ahead = ReadAhead(own.fileno(), _AHEAD_BYTES)
        self._thread = threading.Thread(target=self._ahead.run, name="read-ahead")
        self._thread.start()

    def close(self) -> None:
        self._ahead.stop()
        self._thread.join()
        super().close()

    def receive(self, room: memoryview) -> int:
        try:
            return self._ahead.receive(room)
        except OSError as error:
            raise lost(error) from error

    def wait(self, seconds: float) -> bool:
        return self._ahead.wait(seconds)


class LowWaterWire(PlainWire):
    """For TCP: the kernel wakes us when many bytes wait. What is there is read at once, since segments that pile up
    cost the walsender CPU."""

    def __init__(self, own: socket.socket) -> None:
        super().__init__(own)
        self._heard = 0.0

    def receive(self, room: memoryview) -> int:
        size = super().receive(room)
        if size:
            self._heard = time.monotonic()
        return size

    def wait(self, seconds: float) -> bool:
        if time.monotonic() - self._heard < _BUSY_SECONDS:
            self._wake_for(_MANY_BYTES)
            super().wait(_BUSY_SECONDS)
            self._wake_for(1)
        return super().wait(seconds)

    def _wake_for(self, count: int) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
