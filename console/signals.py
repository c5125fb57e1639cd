"""SIGTERM and SIGINT in, a stop event out: the first asks for a clean stop, the second ends the process at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType

import structlog

_STOPPING = (signal.SIGTERM, signal.SIGINT)

log = structlog.get_logger(__name__)


@contextmanager
def stop_on_signals(at_once: Callable[[], None] = lambda: None) -> Iterator[threading.Event]:
    """An event that the first signal sets; `at_once` is called before the second ends the process.

    To be used in the main thread; the handlers from before come back at the end."""
    stop = threading.Event()
    owner = os.getpid()
    arrived: SimpleQueue[int] = SimpleQueue()
    count = 0

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        # A forked child has the handler but not the thread that listens: there a signal means what it always meant.
        if os.getpid() != owner:
            end_by(number)
        if count > 1:
            at_once()
            end_by(number)
        # Event.set takes a lock that the interrupted code may hold; SimpleQueue.put is made for signal handlers.
        arrived.put(number)

    def listen() -> None:
        number = arrived.get()
        if number:
            log.info("stop asked for", signal=signal.Signals(number).name)
            stop.set()

    before = {number: signal.signal(number, handle) for number in _STOPPING}
    listener = threading.Thread(target=listen, name="signals")
    listener.start()
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        arrived.put(0)
        listener.join()


def end_by(number: int) -> None:
    """End this process as the signal alone would have ended it, so that its exit code tells."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
