"""A world as one value that two worlds share exactly if everything that matters to what comes is the same in both."""

from __future__ import annotations

import enum
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from pydantic import BaseModel

from tests.model.world import World

_PLAIN = (int, str, bytes, float, bool, type(None), enum.Enum)
_NOTHING = (BaseModel, threading.Lock().__class__, type, Callable)


def state_of(world: World) -> int:
    """As a hash: of so few states no two share one by chance."""
    return hash(_plain(world, {}))


def _plain(value: Any, seen: dict[int, int]) -> Any:  # noqa: ANN401 -- any object
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, _NOTHING):
        return None
    if id(value) in seen:
        return ("again", seen[id(value)])
    if isinstance(value, tuple | list):
        return tuple(_plain(each, seen) for each in value)
    if isinstance(value, Mapping):
        return tuple((_plain(key, seen), _plain(each, seen)) for key, each in value.items())
    if isinstance(value, set | frozenset):
        return tuple(sorted(map(str, value)))
    seen[id(value)] = len(seen)
    if isinstance(value, Future):
        return _plain(value.result(), seen) if value.done() else "asked"
    if isinstance(value, queue.SimpleQueue):
        return _plain(_queued(value), seen)
    return type(value).__name__, *((name, _plain(each, seen)) for name, each in _fields(value) if name not in _IGNORED)


_IGNORED = {"scope", "began", "logged", "_saved_at", "_share_before", "emitted_at", "history"}


def _fields(value: object) -> list[tuple[str, Any]]:
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    return [*[(name, getattr(value, name)) for name in slots], *getattr(value, "__dict__", {}).items()]


def _queued(values: queue.SimpleQueue[Any]) -> list[Any]:
    found = []
    while not values.empty():
        found.append(values.get())
    for each in found:
        values.put(each)
    return found
