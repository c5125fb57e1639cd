"""Capture, and commands that people give, as processes that are forked from one that has loaded their modules: a run
starts them hundreds of times, and most of the CPU of a start goes into imports. From then on each is `penstock VERB`,
with an environment and a session of its own; capture with a pipe to its parent, a command with an output.
"""

from __future__ import annotations

import array
import atexit
import enum
import functools
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import IO, Any, NoReturn

from console.stages import Child, Stage
from schemas.failpoints import VARIABLE, arm

_NUMBER = struct.Struct("!i")
_LOOK_SECONDS = 0.02
_VERBS = ("capture", "status", "wait", "resync", "rollback", "pause", "resume", "skip", "acknowledge", "setup_source")


def begun(name: str, arguments: list[str], environment: Mapping[str, str], errors: IO[bytes]) -> Stage:
    return (ForkedStage if arguments[0] == "capture" else Stage)(name, arguments, environment, errors)


class ForkedStage(Stage):
    """A stage whose process is a child of the server's."""

    def _begun(
        self, arguments: list[str], environment: Mapping[str, str], errors: IO[bytes] | None, pipe: int
    ) -> Child:
        assert errors is not None
        return _forked(Kind.STAGE, arguments, environment, pipe, errors)


def ran(
    arguments: list[str], environment: Mapping[str, str], output: IO[bytes], errors: IO[bytes], seconds: float
) -> int:
    """The exit code of a command, which is killed if it takes longer than that."""
    process = _forked(Kind.COMMAND, arguments, environment, output.fileno(), errors)
    try:
        return process.wait(seconds)
    finally:
        process.kill()


class Kind(enum.Enum):
    """What the descriptor is for that a process gets besides the one for its errors."""

    STAGE = "a pipe to the parent"
    COMMAND = "the output"


def _is_readable(waited_for: socket.socket, seconds: float | None) -> bool:
    """After a wait of at most so long. `select` takes no descriptor above 1023, and a long run of tests has those."""
    poller = select.poll()
    poller.register(waited_for, select.POLLIN)
    return bool(poller.poll(None if seconds is None else seconds * 1000))


class ForkedProcess:
    """Its id, and its exit code when it has one, come over a socket from the server, which is its parent."""

    def __init__(self, told: socket.socket) -> None:
        self._told = told
        (self.pid,) = _NUMBER.unpack(told.recv(_NUMBER.size, socket.MSG_WAITALL))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and _is_readable(self._told, 0):
            (self.returncode,) = _NUMBER.unpack(self._told.recv(_NUMBER.size, socket.MSG_WAITALL))
            self._told.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not _is_readable(self._told, timeout):
            raise subprocess.TimeoutExpired("penstock", timeout or 0)
        code = self.poll()
        assert code is not None
        return code

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def _forked(
    kind: Kind, arguments: list[str], environment: Mapping[str, str], own: int, errors: IO[bytes]
) -> ForkedProcess:
    mine, theirs = socket.socketpair()
    order = json.dumps([kind.value, arguments, dict(environment)]).encode()
    server = _server()
    with theirs:
        fds = array.array("i", [theirs.fileno(), own, errors.fileno()])
        server.sendmsg([_NUMBER.pack(len(order))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        server.sendall(order)
    return ForkedProcess(mine)


@functools.cache
def _server() -> socket.socket:
    """One for each process of pytest; it ends when that does."""
    mine, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", f"from tests.support.forked_stage import serve; serve({theirs.fileno()})"],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def end() -> None:
        mine.close()
        process.wait()

    atexit.register(end)
    return mine


def serve(orders_fd: int) -> None:
    """The server: begins what it is told to, and tells how it ended."""
    for module in ("capture.run", "capture.table_sync.nursery", *(f"console.commands.{verb}" for verb in _VERBS)):
        import_module(module)  # not in the process of pytest
    orders = socket.socket(fileno=orders_fd)
    children: dict[int, socket.socket] = {}
    while True:
        if _is_readable(orders, _LOOK_SECONDS if children else None):
            size, fds, _, _ = socket.recv_fds(orders, _NUMBER.size, 3)
            if not size:
                return
            order = orders.recv(*_NUMBER.unpack(size), socket.MSG_WAITALL)
            told, own, errors = fds
            pid = os.fork()
            if pid == 0:
                orders.close()
                os.close(told)
                for other in children.values():
                    other.close()
                kind, arguments, environment = json.loads(order)
                _live(Kind(kind), arguments, environment, own, errors)
            os.close(own)
            os.close(errors)
            children[pid] = socket.socket(fileno=told)
            children[pid].sendall(_NUMBER.pack(pid))
        for pid in list(children):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                with children.pop(pid) as ends, suppress(OSError):  # the test may not have waited for it
                    ends.sendall(_NUMBER.pack(os.waitstatus_to_exitcode(status)))


def _live(kind: Kind, arguments: list[str], environment: dict[str, str], own: int, errors: int) -> NoReturn:
    from console.cli import main  # noqa: PLC0415 -- loaded already

    code: Any = 1
    try:
        os.setsid()
        os.dup2(errors, 2)
        os.close(errors)
        os.environ.clear()
        os.environ.update(environment)
        arm(environment.get(VARIABLE, ""))  # at its import there was another environment
        if kind is Kind.STAGE:
            arguments += ["--parent-pipe", str(own)]
        else:
            os.dup2(own, 1)
        sys.argv = ["penstock", *arguments]
        main()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:  # noqa: BLE001 -- as an interpreter does at its end
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)
