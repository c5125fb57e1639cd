"""Tests wait for facts, never for time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(look: Callable[[], T], *, seconds: float = 60.0, what: str = "the expected fact") -> T:
    """The first true thing that `look` returns; fails with what it saw last."""
    until = time.monotonic() + seconds
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > until:
            raise AssertionError(f"{what} did not happen within {seconds:g} s; last seen: {seen!r}")
        time.sleep(0.05)
