"""Failpoints armed in the process of the test: a crash, or anything else that happens just then."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from schemas.failpoints import ARMED, Armed, require_known


class Crash(BaseException):
    """The process is gone; nothing after it happens, and nobody catches it."""


def crash() -> None:
    raise Crash


def at(monkeypatch: pytest.MonkeyPatch, name: str, happens: Callable[[], object], passes: int = 1) -> None:
    """Something happens when a failpoint is passed for this time, once."""
    require_known(name)
    monkeypatch.setitem(ARMED, name, Armed(lambda _: happens(), passes))


def crashed(monkeypatch: pytest.MonkeyPatch, name: str, doing: Callable[[], object], passes: int = 1) -> None:
    """Something is done until it comes to a failpoint for this time, and no further."""
    at(monkeypatch, name, crash, passes)
    with pytest.raises(Crash):
        doing()
