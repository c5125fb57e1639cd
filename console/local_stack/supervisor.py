"""The process between us and a server. It outlives us just long enough to end the server and remove what it wrote.

Commands come in on stdin and events go out on stdout, one JSON object a line:

    {"do": "start", "argv": [...], "env": {...}, "log": path, "user": [uid, gid] | null,
     "end_signal": n, "end_seconds": n}                      -> {"pid": n} | {"failed": reason}
    {"do": "signal", "signal": n}                            -> nothing, or {"exit": code} when the server ends

The first event is {"directory": path | null}: the throw-away folder, made here so that nobody can die between making
it and guarding it. `exit` is sent when the server and everything it left behind are gone.

When stdin ends, or the parent is dead, or SIGTERM comes: the server gets its `end_signal`, after `end_seconds`
SIGKILL, then the throw-away folder is removed. A parent is watched by its pidfd too, because a process that it
forked may hold the pipe open. Only the standard library is imported: this file is run by its path, in isolated mode.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ON_LINUX = sys.platform == "linux"
_LIBC = ctypes.CDLL(None, use_errno=True) if _ON_LINUX else None


class Supervisor:
    """Runs at most one server at a time."""

    def __init__(self, parent: int, throw_away_prefix: str) -> None:
        self._events = selectors.DefaultSelector()
        self._directory = Path(tempfile.mkdtemp(prefix=throw_away_prefix)) if throw_away_prefix else None
        self._server: subprocess.Popen[bytes] | None = None
        self._end_signal = signal.SIGKILL
        self._end_seconds = 0.0
        self._unread = b""
        self._over = False
        self._watch_signals()
        self._watch_parent(parent)

    def run(self) -> None:
        """Obey until the parent is gone; then leave nothing behind."""
        try:
            self._say(directory=str(self._directory) if self._directory else None)
            while not self._over:
                for key, _ in self._events.select():
                    key.data()
        finally:
            self._end_server()
            if self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)

    def _watch_signals(self) -> None:
        if _LIBC is not None:
            # What a killed server leaves behind becomes ours, so it can be found, ended and waited for.
            _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._signals, wakeup = os.pipe()
        os.set_blocking(self._signals, False)
        os.set_blocking(wakeup, False)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        self._events.register(self._signals, selectors.EVENT_READ, self._on_signal)

    def _watch_parent(self, parent: int) -> None:
        self._events.register(sys.stdin.fileno(), selectors.EVENT_READ, self._on_command)
        try:
            alive = os.pidfd_open(parent)
        except ProcessLookupError:
            self._over = True
        except (AttributeError, OSError):
            pass  # not Linux, or an old kernel: the pipe alone has to tell
        else:
            self._events.register(alive, selectors.EVENT_READ, self._on_parent_gone)
            # The number may belong to a stranger by now, if the parent died before it was opened.
            self._over = os.getppid() != parent

    def _on_parent_gone(self) -> None:
        self._over = True

    def _on_signal(self) -> None:
        arrived = os.read(self._signals, 4096)
        if signal.SIGTERM in arrived:
            self._over = True
        if self._server is not None and self._server.poll() is not None:
            code = self._server.returncode
            self._server = None
            _end_orphans()
            self._say(exit=code)

    def _on_command(self) -> None:
        read = os.read(sys.stdin.fileno(), 65536)
        if not read:
            self._over = True
            return
        *lines, self._unread = (self._unread + read).split(b"\n")
        for line in lines:
            command = json.loads(line)
            if command["do"] == "start":
                self._start(command)
            elif self._server is not None:
                self._server.send_signal(command["signal"])

    def _start(self, command: dict[str, Any]) -> None:
        self._end_signal = signal.Signals(command["end_signal"])
        self._end_seconds = command["end_seconds"]
        ourselves = os.getpid()
        try:
            with Path(command["log"]).open("ab") as log:
                # preexec_fn is safe here: this process has one thread.
                self._server = subprocess.Popen(
                    command["argv"],
                    env=command["env"],
                    cwd=Path(command["log"]).parent,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=lambda: _become_server(command["user"], self._end_signal, ourselves),  # noqa: PLW1509
                )
        except (OSError, subprocess.SubprocessError) as error:
            self._say(failed=str(error))
        else:
            self._say(pid=self._server.pid)

    def _end_server(self) -> None:
        server = self._server
        if server is not None:
            server.send_signal(self._end_signal)
            server.send_signal(signal.SIGCONT)  # a frozen server would not hear it
            try:
                server.wait(self._end_seconds)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
        _end_orphans()

    def _say(self, **event: object) -> None:
        try:
            os.write(sys.stdout.fileno(), json.dumps(event).encode() + b"\n")
        except OSError:
            self._over = True  # nobody listens any more


def _become_server(user: list[int] | None, end_signal: int, supervisor: int) -> None:
    """In the child, before exec: drop root, then ask to be ended with the supervisor (changing the user forgets it)."""
    if user is not None:
        uid, gid = user
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    os.umask(0o077)
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(end_signal), 0, 0, 0)
        if os.getppid() != supervisor:
            os._exit(1)


def _end_orphans() -> None:
    """End what the server left behind (a killed postmaster leaves its backends) and wait until it is gone."""
    while True:
        for pid in _children():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            pid, _ = os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> list[int]:
    if not _ON_LINUX:
        return []
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            status = (entry / "stat").read_text()
        except OSError:
            continue  # it ended while we looked
        parent = int(status.rpartition(")")[2].split()[1])  # a name may hold blanks and brackets
        if parent == os.getpid():
            found.append(int(entry.name))
    return found


if __name__ == "__main__":
    Supervisor(parent=int(sys.argv[1]), throw_away_prefix=sys.argv[2]).run()
