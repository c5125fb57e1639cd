"""Processes as the machine sees them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # ended, and not yet noticed by the machine's first process


def children(pid: int, name: str) -> list[int]:
    """Of a process, those that have this name."""
    told = Path(f"/proc/{pid}/task").glob("*/children")
    pids = [int(child) for found in told for child in found.read_text().split()]
    return [child for child in pids if Path(f"/proc/{child}/comm").read_text().strip() == name]


def descendants(pid: int) -> list[int]:
    """All that it started, and all that these did; of one that ends meanwhile, what there was to be seen."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for told in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in told.read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def signal_all(pids: list[int], number: signal.Signals) -> None:
    """Those that are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """A process, with all that it started."""
    pids = [pid, *descendants(pid)]
    signal_all(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        signal_all(pids, signal.SIGCONT)
