"""What the explorer is sent through: scopes that put some kinds of steps beside each other, and leave others out."""

from __future__ import annotations

from dataclasses import replace

from tests.model.source import Kind
from tests.model.world import LEVEL, Scope, Step

_FAULTS = {
    "other WAL": 2,
    "crash": 2,
    "take over": 2,
    "worker dies": 2,
    "lands twice": 1,
    "apply crashes": 2,
    "apply taken over": 2,
    "take and die": 3,
    "work and die": 2,
    "leave": 1,
    "join": 1,
    "resync": 1,
    "rewrite": 1,
    "policy": 1,
    "destination joins": 1,
}
"""How often at most in one walk."""
_EDITS = (
    "update a, insert b",
    "insert a",
    "insert a, update last a",
    "update a",
    "move a",
    "delete a",
    "truncate a",
    "update b",
    "insert b, move a",
    "delete b",
    "truncate b",
)


def _without(*names: str) -> dict[str, int]:
    return {"commit": 8, **_FAULTS, **dict.fromkeys(names, 0)}


_CAPTURE = ("crash", "take over", "worker dies", "leave", "join", "resync", "rewrite", "policy", "lands twice")
_APPLY = ("apply crashes", "apply taken over", "take and die", "work and die", "destination joins")

EVERYTHING = [
    Scope((Kind.PLAIN, Kind.BAG), (True, True), 2, _EDITS, _without(), interval_rows=3),
    Scope((Kind.TOASTED, Kind.BAG), (True, False), 1, _EDITS, _without()),
    Scope((Kind.PLAIN, Kind.TOASTED), (False, True), 2, _EDITS, _without(), interval_rows=2),
]
COPIES = Scope(
    (Kind.PLAIN, Kind.TOASTED),
    (True,),
    1,
    ("update a", "insert a", "update b", "delete b", "move a", "truncate a"),
    {**_without(*_CAPTURE, *_APPLY, "lands"), "crash": 2, "take over": 1, "worker dies": 2, "resync": 1, "rewrite": 1},
    level=0.1,
)
COPIED_BAGS = replace(COPIES, kinds=(Kind.PLAIN, Kind.BAG), transactions=("update a, insert b", "insert b", "update b"))
RESUMED = replace(
    COPIES,
    transactions=("update a", "update b"),
    limits={**_without(*_CAPTURE, *_APPLY, "lands"), "commit": 3, "crash": 1, "worker dies": 2},
    level=0.0,
)
ZOMBIES = Scope(
    (Kind.PLAIN, Kind.BAG),
    (True,),
    1,
    ("update a, insert b", "insert a", "update b", "delete b"),
    {**_without(*_CAPTURE, *_APPLY, "look"), "crash": 2, "take over": 2, "lands twice": 1},
)
ORPHANS = replace(ZOMBIES, limits={**ZOMBIES.limits, "lands twice": 0})
ACKNOWLEDGED = Scope(
    (Kind.PLAIN, Kind.BAG),
    (True, True),
    2,
    ("update a", "insert b"),
    {**_without(*_CAPTURE, *_APPLY, "look"), "crash": 1, "apply taken over": 1, "apply crashes": 1, "policy": 1},
)
TOLD = replace(
    ACKNOWLEDGED,
    transactions=("update a",),
    limits={**ACKNOWLEDGED.limits, "commit": 3, "policy": 0, "lands": 0, "orphan lands": 0},
    level=1.0,
)
DESTINATIONS = Scope(
    (Kind.TOASTED, Kind.BAG),
    (False,),
    1,
    _EDITS,
    {**_without(*_CAPTURE, "look"), "apply crashes": 3, "apply taken over": 2, "take and die": 5},
)
_NEVER = dict.fromkeys([*_FAULTS, "look", "lands"], 0)
_KILLED = Scope((Kind.PLAIN, Kind.BAG), (True,), 1, ("update a, insert b",), {**_NEVER, "commit": 1, "crash": 1})
SMALL: dict[str, tuple[Scope, tuple[Step, ...]]] = {
    "a kill": (replace(_KILLED, limits={**_KILLED.limits, "lands": 1}), (LEVEL,)),
    "a frozen capture": (replace(_KILLED, limits={**_NEVER, "commit": 1, "take over": 1}), (LEVEL,)),
    "crashes between the commits of tables": (
        replace(
            _KILLED,
            atomic=(False,),
            limits={**_NEVER, "commit": 2, "take and die": 2, "apply crashes": 1, "apply taken over": 1},
        ),
        (LEVEL,),
    ),
    "a copy": (replace(_KILLED, limits={**_KILLED.limits, "look": 99}), ()),
}
"""One or two transactions over both tables, and one kind of fault: small enough for every order of their steps."""
ALL = [
    *EVERYTHING,
    COPIES,
    COPIED_BAGS,
    RESUMED,
    ZOMBIES,
    ACKNOWLEDGED,
    TOLD,
    DESTINATIONS,
    replace(DESTINATIONS, atomic=(True,)),
]
