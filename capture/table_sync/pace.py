"""At most so many bytes a second: a copy that gives way to whoever else uses the source, the network or Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable

_SLICE_SECONDS = 0.5


class Pace:
    """What was taken is paid for with time, at once: there is no credit, so no burst. `alive` is called meanwhile."""

    def __init__(
        self,
        bytes_per_second: float | None,
        alive: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """None: as fast as it goes."""
        self._rate = bytes_per_second
        self._alive = alive
        self._clock = clock
        self._sleep = sleep
        self._due = 0.0

    def take(self, size: int) -> None:
        """Returns when `size` bytes are within the rate."""
        if self._rate is None:
            return
        self._due = max(self._due, self._clock()) + size / self._rate
        while (left := self._due - self._clock()) > 0:
            self._sleep(min(left, _SLICE_SECONDS))
            self._alive()
