"""A TCP proxy whose cable can be pulled: nothing goes through any more, and nobody is told."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from types import TracebackType
from typing import Self

_LOOK_SECONDS = 0.05
_CHUNK = 64 * 1024


class Proxy:
    """Forwards connections to a port of this host. One thread, which `with` ends."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._peers: dict[socket.socket, socket.socket] = {}
        self._events = selectors.DefaultSelector()
        self._events.register(self._listener, selectors.EVENT_READ)
        self._stop = threading.Event()
        self._cut = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy")
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._events.close()
        for end in (self._listener, *self._peers):
            end.close()

    def cut(self) -> None:
        """Connections that are there stay open, and silent for ever. New ones go through."""
        self._cut.set()
        while self._cut.is_set():
            self._stop.wait(_LOOK_SECONDS)

    def _run(self) -> None:
        while not self._stop.is_set():
            ready = self._events.select(_LOOK_SECONDS)
            if self._cut.is_set():
                for end in list(self._peers):
                    with contextlib.suppress(KeyError):
                        self._events.unregister(end)
                self._cut.clear()
                continue
            for key, _ in ready:
                assert isinstance(key.fileobj, socket.socket)
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._forward(key.fileobj)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        far = socket.create_connection(("127.0.0.1", self._target))
        for end, other in ((near, far), (far, near)):
            self._peers[end] = other
            self._events.register(end, selectors.EVENT_READ)

    def _forward(self, end: socket.socket) -> None:
        other = self._peers.get(end)
        if other is None:
            return  # closed with its other end, a moment ago
        try:
            data = end.recv(_CHUNK)
            other.sendall(data)
        except OSError:
            data = b""
        if not data:
            for each in (end, other):
                self._events.unregister(each)
                del self._peers[each]
                each.close()
