"""Where copy workers come from: a process that was forked while capture had neither threads nor connections.

It has loaded all that a worker needs, so a worker is there after milliseconds; a new interpreter spends half a second
of CPU on imports. It ends its workers when capture is gone, however that happened.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from capture.errors import NurseryEnded
from capture.readiness import readable
from capture.table_sync.worker import work

NAME = "penstock-copy"
"""What `top` and `ps` show; at most 15 characters."""
_ORDER = struct.Struct("!ci")
_BEGIN, _END = b"b", b"e"
_LOOK_SECONDS = 0.2
_PR_SET_PDEATHSIG = 1


class Nursery:
    """To be made before the first thread, and used by one. `with` ends it and every worker that it began."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            self._orders.close()
            _without_return(lambda: _tend(theirs))
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._orders.close()
        os.waitpid(self._pid, 0)

    def begin(self) -> tuple[int, Connection]:
        """A new worker: its process and the pipe to it."""
        mine, theirs = Pipe()
        with theirs:
            try:
                socket.send_fds(self._orders, [_ORDER.pack(_BEGIN, 0)], [theirs.fileno()])
                _, pid = _ORDER.unpack(self._orders.recv(_ORDER.size, socket.MSG_WAITALL))
            except (OSError, struct.error) as error:
                mine.close()
                raise NurseryEnded("The process that starts the workers of copies has ended.") from error
        return pid, mine

    def end(self, pid: int) -> None:
        """Kills a worker, if it is still there."""
        with suppress(OSError):  # nobody is left to be told
            self._orders.sendall(_ORDER.pack(_END, pid))


def _tend(orders: socket.socket) -> None:
    """Takes orders until capture is gone. A process id is used only while nobody else can have it: until we reap it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for capture, which ends us when it is done
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _call_oneself(NAME)
    workers: set[int] = set()
    try:
        while True:
            if readable(orders, _LOOK_SECONDS if workers else None):
                message, fds, _, _ = socket.recv_fds(orders, _ORDER.size, 1)
                if len(message) < _ORDER.size:
                    return
                order, pid = _ORDER.unpack(message)
                if order == _BEGIN:
                    pid = _begun(fds[0], orders)
                    workers.add(pid)
                    orders.sendall(_ORDER.pack(_BEGIN, pid))
                elif pid in workers:
                    os.kill(pid, signal.SIGKILL)
            workers -= {pid for pid in workers if os.waitpid(pid, os.WNOHANG)[0]}
    except ConnectionError:  # capture was killed before it had read an answer
        return
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGKILL)


def _begun(pipe: int, orders: socket.socket) -> int:
    nursery = os.getpid()
    pid = os.fork()
    if pid == 0:
        orders.close()
        _end_with(nursery)
        _without_return(lambda: work(Connection(pipe)))
    os.close(pipe)
    return pid


def _end_with(parent: int) -> None:
    """The kernel ends us with our parent, whatever we wait for: a server may be silent for good. Only Linux does so;
    elsewhere a worker learns it from its pipe, when it looks there."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)  # it was gone before the kernel knew


def _without_return(life: Callable[[], None]) -> NoReturn:
    """What a forked process does, and nothing of what its parent had planned."""
    code = 1
    try:
        life()
        code = 0
    except BaseException:  # noqa: BLE001 -- nobody above would print it
        traceback.print_exc()
    finally:
        os._exit(code)


def _call_oneself(name: str) -> None:
    with suppress(OSError):  # only Linux has such a file
        Path("/proc/self/comm").write_text(name)
