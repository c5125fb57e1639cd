"""CPU seconds and memory of every process that takes part, by role, sampled from /proc while a run goes on.

    meter.watch(pid, role)       this process, and its children by their kind
    meter.between(start, end)    CPU seconds by role, user and system, all threads
    meter.peaks(since)           largest resident set by role of the processes that lived then

The kernel counts CPU in ticks of 10 ms; samples are 100 ms apart and values between them are interpolated. Beside the
roles stands `stolen`: the seconds in which a core had work and the host ran somebody else's.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

_SAMPLE_SECONDS = 0.1
_DISCOVER_EVERY = 3
_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
_UTIME, _STIME, _STARTED = 11, 12, 19  # fields of /proc/PID/stat after the name
_STEAL = 8  # field of the first line of /proc/stat

POSTGRES, CAPTURE, APPLY, BROKER, CLIENT = "postgres", "capture", "apply", "broker", "client"
PROCESS = "all processes"
STOLEN = "stolen"


@dataclass
class _Process:
    pid: int
    role: str
    cpu: float = 0.0
    peak: int = 0
    seen: float = 0.0


class Meter:
    """`with` samples until the end."""

    def __init__(self) -> None:
        self._roots: dict[int, str] = {}
        self._processes: dict[tuple[int, int], _Process] = {}
        self._samples: list[tuple[float, dict[str, float]]] = []
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="meter")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def watch(self, pid: int, role: str) -> None:
        with self._lock:
            self._roots[pid] = role
            self._discover()

    def forget(self, pid: int) -> None:
        """To be called before the process is told to end."""
        with self._lock:
            self._sample()
            self._discover()
            self._roots.pop(pid, None)

    def between(self, start: float, end: float) -> dict[str, float]:
        with self._lock:
            self._sample()
            roles = self._samples[-1][1]
            used = {role: self._at(role, end) - self._at(role, start) for role in roles}
        return {role: seconds for role, seconds in sorted(used.items()) if seconds > 0}

    def peaks(self, since: float) -> dict[str, int]:
        with self._lock:
            self._discover()
            found: dict[str, int] = {}
            for process in self._processes.values():
                if process.seen >= since and process.peak:
                    found[process.role] = max(found.get(process.role, 0), process.peak)
        return found

    def _run(self) -> None:
        turn = 0
        while not self._stop.wait(_SAMPLE_SECONDS):
            with self._lock:
                if turn % _DISCOVER_EVERY == 0:
                    self._discover()
                self._sample()
            turn += 1

    def _discover(self) -> None:
        for root, role in list(self._roots.items()):
            self._add(root, _role(root, role, is_root=True))
            for child in descendants(root):
                self._add(child, _role(child, role, is_root=False))

    def _add(self, pid: int, role: str | None) -> None:
        stat = _stat(pid)
        if stat is None or role is None:
            return
        process = self._processes.setdefault((pid, int(stat[_STARTED])), _Process(pid, role))
        process.role = role
        process.peak = max(process.peak, peak_bytes(pid))
        process.seen = time.time()

    def _sample(self) -> None:
        now = time.time()
        totals = {STOLEN: _stolen_seconds()}
        for (pid, started), process in self._processes.items():
            stat = _stat(pid) if process.seen > now - 2.0 else None
            if stat is not None and int(stat[_STARTED]) == started:
                process.cpu = (int(stat[_UTIME]) + int(stat[_STIME])) / _TICKS
            totals[process.role] = totals.get(process.role, 0.0) + process.cpu
        self._samples.append((now, totals))

    def _at(self, role: str, moment: float) -> float:
        index = bisect_right(self._samples, moment, key=lambda sample: sample[0])
        if index == 0:
            return self._samples[0][1].get(role, 0.0)
        if index == len(self._samples):
            return self._samples[-1][1].get(role, 0.0)
        (t0, before), (t1, after) = self._samples[index - 1 : index + 1]
        low, high = before.get(role, 0.0), after.get(role, 0.0)
        return low + (high - low) * (moment - t0) / (t1 - t0)


def peak_bytes(pid: int) -> int:
    """VmHWM: the most memory that a process ever held; 0 where it has ended."""
    try:
        lines = (_PROC / str(pid) / "status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def cpu_seconds(pid: int) -> float:
    """User and system, of a process and of those that it started and that live."""
    stats = [stat for each in (pid, *descendants(pid)) if (stat := _stat(each)) is not None]
    return sum(int(stat[_UTIME]) + int(stat[_STIME]) for stat in stats) / _TICKS


def _stolen_seconds() -> float:
    with (_PROC / "stat").open() as lines:
        return int(next(lines).split()[_STEAL]) / _TICKS


def _stat(pid: int) -> list[str] | None:
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in (_PROC / str(pid) / "task").iterdir():
            children = [int(child) for child in (task / "children").read_text().split()]
            found += children
            for child in children:
                found += descendants(child)
    except (FileNotFoundError, ProcessLookupError):
        pass  # it has ended while we looked
    return found


def _role(pid: int, root_role: str, *, is_root: bool) -> str | None:
    """What a process is, by its command line; None while it has no title yet."""
    try:
        command = (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if root_role == POSTGRES:
        return _postgres_role(command, is_root=is_root)
    if root_role == CAPTURE:
        return "capture" if is_root else "copy workers"
    if root_role == APPLY:
        return "spark jvm" if not is_root and "java" in command.split(" ", 1)[0] else "apply python"
    return root_role


def _postgres_role(command: str, *, is_root: bool) -> str | None:
    if is_root:
        return "postgres, other"
    if not command.startswith("postgres: "):
        return None
    if command.startswith("postgres: walsender"):
        return "walsender"
    return "backends" if command.startswith("postgres: postgres") else "postgres, other"
