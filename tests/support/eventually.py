"""Tests wait for facts, never for time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_REST_SECONDS = 0.05


def eventually(look: Callable[[], T], *, seconds: float = 60.0, what: str = "the expected fact") -> T:
    """The first true thing that `look` returns; fails with what it saw last."""
    until = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        seen = look()
        if seen:
            return seen
        if time.monotonic() > until:
            raise AssertionError(f"{what} did not happen within {seconds:g} s; last seen: {seen!r}")
        time.sleep(max(_REST_SECONDS, time.monotonic() - began))  # to look takes at most half of the time
