"""A process whose wall clock somebody else moves: says what its clocks show, or how long its waits of a second took."""

from __future__ import annotations

import ctypes
import json
import queue
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

_SECONDS = 1.0
_LIBC = ctypes.CDLL(None)
_MONOTONIC = 1


class Moment(ctypes.Structure):
    """A timespec, or a timeval."""

    _fields_ = (("seconds", ctypes.c_long), ("parts", ctypes.c_long))


def tell() -> dict[str, object]:
    day = Moment()
    _LIBC.gettimeofday(ctypes.byref(day), None)
    _LIBC.time.restype = ctypes.c_long
    wall = {
        "clock_gettime": time.time(),
        "coarse": time.clock_gettime(5),
        "gettimeofday": day.seconds + day.parts / 1e6,
        "time": _LIBC.time(None),
    }
    return {"wall": wall, "monotonic": time.monotonic()}


def wait() -> dict[str, float]:
    """All at once, each in a thread of its own."""
    took: dict[str, float] = {}

    def measure(name: str, wait: Callable[[], object]) -> None:
        began = time.monotonic()
        wait()
        took[name] = time.monotonic() - began

    threads = [threading.Thread(target=measure, args=each) for each in _waits().items()]
    for thread in threads:
        thread.start()
    print("waiting", flush=True)  # noqa: T201 -- to whoever moves the clock
    for thread in threads:
        thread.join()
    return took


def _waits() -> dict[str, Callable[[], object]]:
    return {
        "sleep": lambda: time.sleep(_SECONDS),
        "event": lambda: threading.Event().wait(_SECONDS),
        "condition": _condition,
        "queue": _queue,
        "monotonic condition": lambda: _timed_wait("pthread_cond_timedwait", _in(time.monotonic())),
        "cnd_timedwait": lambda: _timed_wait("cnd_timedwait", _in(time.time())),
        "pthread_cond_timedwait": lambda: _timed_wait("pthread_cond_timedwait", _in(time.time())),
        "sem_timedwait": lambda: _LIBC.sem_timedwait(ctypes.create_string_buffer(64), ctypes.byref(_in(time.time()))),
    }


def _condition() -> None:
    condition = threading.Condition()
    with condition:
        condition.wait(_SECONDS)


def _queue() -> None:
    with suppress(queue.Empty):
        queue.Queue[int]().get(timeout=_SECONDS)


def _timed_wait(name: str, end: Moment) -> None:
    """On a condition that nobody ever signals; it is made for the clock of `end`."""
    condition, mutex, attribute = (ctypes.create_string_buffer(64) for _ in range(3))
    if end.seconds < time.monotonic() + 2 * _SECONDS:
        _LIBC.pthread_condattr_setclock(attribute, _MONOTONIC)
    _LIBC.pthread_cond_init(condition, attribute)
    _LIBC.pthread_mutex_lock(mutex)
    getattr(_LIBC, name)(condition, mutex, ctypes.byref(end))


def _in(now: float) -> Moment:
    end = now + _SECONDS
    return Moment(int(end), int(end % 1 * 1e9))


if __name__ == "__main__":
    print(json.dumps({"tell": tell, "wait": wait}[sys.argv[1]]()))  # noqa: T201 -- the answer
