"""One epoch after the other, until the stop. What is away is waited for without end, with nothing left open meanwhile.

Both who may stand before the pipeline's topics, capture and adopt, run so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Protocol

import structlog

from schemas.errors import PenstockError

_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 5.0

log = structlog.get_logger(__name__)


class Epoch(Protocol):
    """One incarnation, its opening checkpoint written."""

    def run(self, stop: threading.Event) -> None:
        """Until `stop`, or until something is away."""


def run_epochs(
    opened: Callable[[ExitStack], Epoch], away: tuple[type[PenstockError], ...], stop: threading.Event
) -> None:
    """`opened` puts onto the stack what ends an epoch; `away` is what is waited for. InterruptedError: told to stop."""
    pause = _PAUSE_SECONDS
    while not stop.is_set():
        with ExitStack() as parts:
            try:
                epoch = opened(parts)
                pause = _PAUSE_SECONDS
                epoch.run(stop)
            except away as error:
                log.warning("waiting to open the next epoch", error=error.reason, solution=error.solution)
            except InterruptedError:
                return
            else:
                continue
        stop.wait(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
