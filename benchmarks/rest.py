"""A pause until the machine is as fast as it was before. A host that lends its cores seems to take some of that back
after they were in full use for a while: what came behind the reader that never rests was slower, in every round.

What is divided by each other is to meet the same machine, so its speed is tried before each step: a fixed piece of work
on all cores, in a fifth of a second.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

_WORK = bytes(1024**2)
_TIMES = 200
_SLOWER = 1.15
_PAUSE_SECONDS = 2.0


def speed_tried() -> float:
    """How many seconds the piece of work took on the slowest core."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return max(pool.map(_worked, range(os.cpu_count() or 1)))


def _worked(_core: int) -> float:
    began = time.perf_counter()
    digest = hashlib.sha256()
    for _ in range(_TIMES):
        digest.update(_WORK)  # without the interpreter's lock
    return time.perf_counter() - began


class Rest:
    """`most`: the longest pause in seconds. A machine that stays slow is measured as it is."""

    def __init__(
        self, most: float, tried: Callable[[], float] = speed_tried, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._most = most
        self._tried = tried
        self._sleep = sleep
        self._best = math.inf

    def take(self) -> float:
        """How long it was, in seconds."""
        rested = 0.0
        while True:
            took = self._tried()
            if took <= self._best * _SLOWER or rested >= self._most:
                self._best = min(self._best, took)
                return rested
            self._sleep(_PAUSE_SECONDS)
            rested += _PAUSE_SECONDS
