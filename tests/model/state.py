"""A world as a value: twice, so that each goes its own way, and as a hash that two worlds share where all that matters
to what comes is the same in both."""

from __future__ import annotations

import copy
import copyreg
import enum
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any
from unittest.mock import patch

from pydantic import BaseModel

from apply_spark.progress import Progress, TableProgress
from schemas.identifiers import TableName
from schemas.lsn import Lsn
from schemas.table import TableSchema
from stores.cached import _View
from stores.relations import Relation
from tests.model.broker import Change
from tests.model.source import Moment, Row, Snapshot, Transaction
from tests.model.streamed import CONFIG
from tests.model.world import Scope, World

_PLAIN = (int, str, bytes, float, bool, type(None), enum.Enum)
_NOTHING = (BaseModel, threading.Lock().__class__, type, Callable)


_SHARED = (
    *(Change, Lsn, Moment, Progress, Relation, Row, Scope, Snapshot),
    *(TableName, TableProgress, TableSchema, Transaction, _View),
)
"""Never changed, so two worlds may have the same one."""


def twin(world: World) -> World:
    """Another world in the same state."""
    configured = [CONFIG, *vars(CONFIG).values(), *(apply.tuning for apply in world.applies if apply is not None)]
    with patch.dict(copyreg.dispatch_table, _REDUCED):
        return copy.deepcopy(world, {id(each): each for each in configured})


def _queue(values: list[Any]) -> queue.SimpleQueue[Any]:
    made: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for value in values:
        made.put(value)
    return made


def _future(done: bool, result: Any) -> Future[Any]:  # noqa: ANN401, FBT001 -- of any result; called by deepcopy
    made: Future[Any] = Future()
    if done:
        made.set_result(result)
    return made


_REDUCED: dict[type, Callable[[Any], Any]] = {
    **dict.fromkeys(_SHARED, lambda _: "the same one"),
    type(threading.Lock()): lambda _: (threading.Lock, ()),
    queue.SimpleQueue: lambda values: (_queue, (_queued(values),)),
    Future: lambda future: (_future, (future.done(), future.result() if future.done() else None)),
}
"""How deepcopy takes what it cannot, or need not, take apart."""


_hashes: dict[int, tuple[object, int]] = {}
"""Of what is shared, by id; the object is kept, so that no other has that id."""


def state_of(world: World) -> int:
    """As a hash: of so few states no two share one by chance."""
    return hash(_plain(world, {}))


def _shared(value: object) -> int:
    if id(value) not in _hashes:
        _hashes[id(value)] = value, hash(_taken_apart(value, {}))
    return _hashes[id(value)][1]


def _plain(value: Any, seen: dict[int, int]) -> Any:  # noqa: ANN401 -- any object
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, _NOTHING):
        return None
    if isinstance(value, _SHARED):
        return _shared(value)
    if id(value) in seen:
        return ("again", seen[id(value)])
    return _taken_apart(value, seen)


def _taken_apart(value: Any, seen: dict[int, int]) -> Any:  # noqa: ANN401 -- any object
    if isinstance(value, tuple | list):
        return tuple(_plain(each, seen) for each in value)
    if isinstance(value, Mapping):
        return tuple((_plain(key, seen), _plain(value[key], seen)) for key in sorted(value, key=str))
    if isinstance(value, set | frozenset):
        return tuple(sorted(map(str, value)))
    seen[id(value)] = len(seen)
    if isinstance(value, Future):
        return _plain(value.result(), seen) if value.done() else "asked"
    if isinstance(value, queue.SimpleQueue):
        return _plain(_queued(value), seen)
    return type(value).__name__, *((name, _plain(each, seen)) for name, each in _fields(value) if name not in _IGNORED)


_IGNORED = {
    *("scope", "kinds", "schemas", "_shapes", "registrar", "config"),
    *("began", "logged", "_saved_at", "_share_before", "_last_cut"),
    *("_acknowledged", "_looked_at"),
}
"""What is the same in every state, clocks, and what only says that a step would change nothing."""


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
