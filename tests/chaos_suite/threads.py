"""Threads that work until the end of a block."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self


class Threads:
    """`with` starts those in `_threads`, which go on until `_stop` is set, and waits for their end."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
