"""Servers as child processes that never outlive us: started, signalled and ended through `supervisor.py`."""

from __future__ import annotations

import json
import os
import random
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from console.local_stack import supervisor
from console.local_stack.errors import LocalStackError, ServerDidNotStart, ServerDidNotStop

_ANSWER_SECONDS = 30.0
# Below the range from which Linux and macOS give ports to outgoing connections: nobody takes a server's port by
# chance while it is down for a restart.
_PORTS = range(15_000, 32_000)


@dataclass(frozen=True)
class ServerCommand:
    """How a server is started, and how it is ended when nobody asks for more than its end."""

    argv: Sequence[str]
    env: Mapping[str, str]
    log: Path
    end_signal: signal.Signals
    end_seconds: float
    user: tuple[int, int] | None = None


class ServerProcess:
    """One server, which may be started again after it ended, and the folder in which it lives.

    Without a folder it gets a throw-away one. The server and that folder are gone after `close`, and also after our
    own death, `kill -9` included. Calls are not to overlap; they may come from any thread."""

    def __init__(self, name: str, directory: Path | None) -> None:
        self.name = name
        self.pid: int | None = None
        self._unread = b""
        prefix = f"penstock-{name}-" if directory is None else ""
        self._supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", supervisor.__file__, str(os.getpid()), prefix],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # Ctrl-C in the terminal is for us; we stop the servers in order
        )
        self._commands = cast("IO[bytes]", self._supervisor.stdin)
        self._events = cast("IO[bytes]", self._supervisor.stdout)
        thrown_away = self._answer()["directory"]
        self.directory = directory or Path(thrown_away)
        self._kept = directory is not None

    def start(self, command: ServerCommand) -> None:
        """Start the server. Returns when the process exists, which is long before it is ready."""
        self._say(
            do="start",
            argv=list(command.argv),
            env=dict(command.env),
            log=str(command.log),
            user=command.user,
            end_signal=int(command.end_signal),
            end_seconds=command.end_seconds,
        )
        event = self._answer()
        if "pid" not in event:
            raise LocalStackError(
                f"{self.name} could not be started: {event.get('failed')}",
                solution=f"Check that {command.argv[0]} exists and may be run.",
            )
        self.pid = int(event["pid"])

    def running(self) -> bool:
        """Whether the server still runs."""
        return self.pid is not None and not self._ended(0.0)

    def stop(self, number: signal.Signals, seconds: float) -> None:
        """Send the signal and wait until the server and its children are gone."""
        if not self.running():
            return
        self._say(do="signal", signal=int(number))
        if not self._ended(seconds):
            raise ServerDidNotStop(
                f"{self.name} (process {self.pid}) still runs {seconds:g} s after {number.name}.",
                solution=f"Disconnect its clients, or end it at once (`kill -9 {self.pid}`).",
            )

    def close(self) -> None:
        """End the server if it runs, remove the throw-away folder, end the supervisor. May be repeated."""
        self._commands.close()
        try:
            self._supervisor.wait(_ANSWER_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise ServerDidNotStop(
                f"The supervisor of {self.name} (process {self._supervisor.pid}) does not end.",
                solution=f"Run `kill -9 {self._supervisor.pid}`; the server ends with it.",
            ) from error
        self._events.close()
        self.pid = None
        if not self._kept:
            shutil.rmtree(self.directory, ignore_errors=True)  # still there only if the supervisor itself was killed

    def _say(self, **command: object) -> None:
        try:
            self._commands.write(json.dumps(command).encode() + b"\n")
        except BrokenPipeError as error:
            raise self._supervisor_gone() from error

    def _ended(self, seconds: float) -> bool:
        try:
            event = self._event(seconds)
        except TimeoutError:
            return False
        if "exit" in event:
            self.pid = None
        return "exit" in event

    def _supervisor_gone(self) -> LocalStackError:
        return LocalStackError(
            f"The supervisor of {self.name} (process {self._supervisor.pid}) has ended by itself.",
            solution="Start the stack again; nothing of this server runs any more.",
        )

    def _answer(self) -> dict[str, Any]:
        try:
            return self._event(_ANSWER_SECONDS)
        except TimeoutError as error:
            raise ServerDidNotStart(
                f"The supervisor of {self.name} says nothing for {_ANSWER_SECONDS:g} s.",
                solution="Start again when the machine is less busy.",
            ) from error

    def _event(self, seconds: float) -> dict[str, Any]:
        """The next event of the supervisor; TimeoutError where none comes in time."""
        until = time.monotonic() + seconds
        with selectors.DefaultSelector() as events:
            events.register(self._events, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not events.select(max(0.0, until - time.monotonic())):
                    raise TimeoutError(f"{self.name}: no event within {seconds:g} s")
                read = os.read(self._events.fileno(), 65536)
                if not read:
                    raise self._supervisor_gone()
                self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        event: dict[str, Any] = json.loads(line)
        return event


def remembered_ports(directory: Path) -> list[int]:
    """The ports of a kept folder's last server; none where it is new, or somebody else has one of them now."""
    try:
        ports = [int(line) for line in (directory / "ports").read_text().split()]
    except FileNotFoundError:
        return []
    return ports if all(is_free(port) for port in ports) else []


def remember_ports(directory: Path, *ports: int) -> None:
    """Write down the ports, so that the next owner of the folder listens where the clients expect it."""
    (directory / "ports").write_text("\n".join(str(port) for port in ports))


def free_port(taken: Sequence[int] = ()) -> int:
    """A port of 127.0.0.1 on which nobody listens now. Somebody may a moment later: be ready to ask again."""
    for port in random.sample(_PORTS, 200):
        if port not in taken and is_free(port):
            return port
    raise LocalStackError(
        f"None of 200 ports tried between {_PORTS.start} and {_PORTS.stop} is free on 127.0.0.1.",
        solution="End some of the servers on this machine.",
    )


def is_free(port: int) -> bool:
    """Whether the port can be bound, as a server would bind it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def listens(port: int) -> bool:
    """Whether somebody accepts connections on the port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def last_lines(path: Path, count: int = 8) -> str:
    """The end of a log, on one line, for an error's reason."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "(no log)"
    return " | ".join(line.strip() for line in lines[-count:]) or "(empty log)"
