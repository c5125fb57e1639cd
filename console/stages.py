"""Capture and apply as child processes, the same commands as on hosts of their own.

A socket pair joins parent and child. The child sees its parent's death as the end of the socket and stops cleanly; the
parent receives on it why the child failed. Promised: a stage that is to stop, or whose parent is gone, has ended a
second after DRAIN_SECONDS at the latest, whatever it was doing.
"""

from __future__ import annotations

import faulthandler
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol, Self

import structlog

from console.errors import StageFailed
from console.signals import stop_on_signals
from schemas.errors import PenstockError

DRAIN_SECONDS = 6.0
"""Docker kills 10 s after its SIGTERM; what is left is for a JVM to end, and for an embedded broker."""
_CHILDREN_SECONDS = 1.0
_LATE_SECONDS = 2.5
"""How much longer its parent waits for a stage that should have drained."""
_LOOK_SECONDS = 0.1
FAILED = 1
_STDERR = 2

log = structlog.get_logger(__name__)


class ReportedToParent(Exception):
    """The parent has the reason; nothing is left to print."""


class Child(Protocol):
    """As much of subprocess.Popen as a stage needs."""

    pid: int

    def poll(self) -> int | None:
        """Its exit code, if it has ended; below 0: the signal that ended it."""

    def wait(self, timeout: float | None = None) -> int: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


class Stage:
    """One child process."""

    def __init__(
        self, name: str, arguments: list[str], environment: Mapping[str, str], errors: IO[bytes] | None
    ) -> None:
        self.name = name
        self._mine, theirs = socket.socketpair()
        self._mine.setblocking(False)
        with theirs:
            self.process = self._begun(arguments, environment, errors, theirs.fileno())
        log.info("stage started", stage=name, pid=self.process.pid)

    def _begun(
        self, arguments: list[str], environment: Mapping[str, str], errors: IO[bytes] | None, pipe: int
    ) -> Child:
        return subprocess.Popen(
            [sys.executable, "-m", "console", *arguments, "--parent-pipe", str(pipe)],
            pass_fds=[pipe],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,  # Ctrl-C in the terminal is for the parent, which tells every stage once
        )

    def ended(self) -> bool:
        return self.process.poll() is not None

    def close(self) -> None:
        self._mine.close()

    def failure(self) -> StageFailed:
        """Why it ended, as it told itself, else as its exit code tells."""
        code = self.process.wait()
        told = self._told()
        if told is not None:
            return StageFailed(f"{self.name}: {told['reason']}", solution=told["solution"], exit_code=code or FAILED)
        if code == 0:
            return StageFailed(f"{self.name} has ended, though nobody asked it to.", solution="Start it again.")
        if code < 0:
            reason = f"{self.name} was ended by {signal.Signals(-code).name}."
            return StageFailed(
                reason,
                exit_code=128 - code,
                solution="Find out who ended it (the kernel, if memory is short), then start it again.",
            )
        return StageFailed(f"{self.name} ended with exit code {code}.", exit_code=code)

    def _told(self) -> dict[str, str] | None:
        received = b""
        try:
            while part := self._mine.recv(65536):
                received += part
        except (BlockingIOError, ConnectionError):
            pass  # the stage is gone; what it said before has been read
        if not received:
            return None
        told: dict[str, str] = json.loads(received)
        return told


class Stages:
    """The children of one parent. `with` ends them all."""

    def __init__(self, environment: Mapping[str, str], log_folder: Path | None = None) -> None:
        self._environment = environment
        self._log_folder = log_folder
        self._stages: list[Stage] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, name: str, arguments: list[str]) -> None:
        """Start a stage; it logs to this process's stderr, or to a file of the log folder."""
        if self._log_folder is None:
            self._stages.append(Stage(name, arguments, self._environment, None))
            return
        self._log_folder.mkdir(parents=True, exist_ok=True)
        with (self._log_folder / f"{name.replace(' ', '-')}.log").open("ab") as errors:
            self._stages.append(Stage(name, arguments, self._environment, errors))

    def check(self) -> None:
        """Raises StageFailed if one has ended."""
        for stage in self._stages:
            if stage.ended():
                raise stage.failure()

    def watch(self, stop: threading.Event) -> None:
        """Returns when `stop` is set and every stage has drained; raises StageFailed if one fails, before or then."""
        while not stop.wait(_LOOK_SECONDS):
            self.check()
        self.ask_to_stop()
        self._wait()
        for stage in self._stages:
            code = stage.process.poll()
            if code is None:
                raise StageFailed(
                    f"{stage.name} did not end within {DRAIN_SECONDS + _LATE_SECONDS:g} s and was killed."
                )
            # A stage that was still starting has no handler yet: the signal ends it, and that is what was asked for.
            if code not in (0, -signal.SIGTERM):
                raise stage.failure()

    def ask_to_stop(self) -> None:
        for stage in self._stages:
            if not stage.ended():
                stage.process.terminate()

    def kill(self) -> None:
        for stage in self._stages:
            if not stage.ended():
                stage.process.kill()

    def stop(self) -> None:
        """Ask every stage to drain; end those that do not in time."""
        self.ask_to_stop()
        self._wait()
        for stage in self._stages:
            if not stage.ended():
                log.warning("stage did not end in time", stage=stage.name)
        self.kill()
        for stage in self._stages:
            stage.process.wait()
            stage.close()

    def _wait(self) -> None:
        until = time.monotonic() + DRAIN_SECONDS + _LATE_SECONDS
        while time.monotonic() < until and not all(stage.ended() for stage in self._stages):
            time.sleep(_LOOK_SECONDS)


@contextmanager
def running_as_stage(parent_pipe: int | None, *, cut_short: int = 0) -> Iterator[threading.Event]:
    """Inside a stage: an event that is set by a signal, or by the parent's death.

    With a parent, a PenstockError is told to it instead of being raised. `cut_short` is the exit code of a stage that
    did not drain in time: an error where it was to come to an end by itself. SIGUSR1 makes it tell what it does."""
    faulthandler.register(signal.SIGUSR1, file=_STDERR)
    with stop_on_signals() as stop, _ended_in_time(stop, cut_short):
        if parent_pipe is None:
            yield stop
            return
        with socket.socket(fileno=parent_pipe) as parent, _watching(parent, stop):
            try:
                yield stop
            except PenstockError as error:
                told = json.dumps({"reason": error.reason, "solution": error.solution}).encode()
                try:
                    parent.sendall(told)
                except OSError:
                    raise error from None  # nobody listens any more: the message goes to stderr
                raise ReportedToParent from error


@contextmanager
def _ended_in_time(stop: threading.Event, code: int) -> Iterator[None]:
    """A stage may wait for a server that is silent, or write what takes minutes. Nothing is lost where it ends in the
    middle of that, as nothing is by a kill: the next start goes on from what is stored."""
    left = threading.Event()

    def watch() -> None:
        stop.wait()
        if not left.wait(DRAIN_SECONDS):
            log.warning("stage did not drain in time, leaving the rest to the next start", seconds=DRAIN_SECONDS)
            _signal_children(signal.SIGTERM)
            time.sleep(_CHILDREN_SECONDS)  # a JVM removes its files; one that waits for a silent broker does not end
            _signal_children(signal.SIGKILL)
            os._exit(code)

    watcher = threading.Thread(target=watch, name="drain-watch")
    watcher.start()
    try:
        yield
    finally:
        left.set()
        stop.set()
        watcher.join()


def _signal_children(number: signal.Signals) -> None:
    """Of this process, where the system tells them: Linux does. Elsewhere they notice by themselves that it is gone."""
    for told in Path("/proc/self/task").glob("*/children"):
        for pid in told.read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), number)


@contextmanager
def _watching(parent: socket.socket, stop: threading.Event) -> Iterator[None]:
    wake, wakened = socket.socketpair()

    def watch() -> None:
        with selectors.DefaultSelector() as events:
            events.register(parent, selectors.EVENT_READ)
            events.register(wakened, selectors.EVENT_READ)
            if any(key.fileobj is wakened for key, _ in events.select()):
                return
            log.warning("parent has gone")
            stop.set()

    watcher = threading.Thread(target=watch, name="parent-watch")
    watcher.start()
    try:
        yield
    finally:
        wake.close()
        watcher.join()
        wakened.close()
