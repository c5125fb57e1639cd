"""Named places where a test may make a process die: `PENSTOCK_TEST_FAILPOINTS=apply.committed=kill@3`.

Not armed, a place costs one look into an empty dictionary. `@3` means the third time it is passed.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "PENSTOCK_TEST_FAILPOINTS"


def _armed(text: str) -> dict[str, int]:
    """Place -> how many times it may still be passed before the process dies."""
    places: dict[str, int] = {}
    for entry in filter(None, text.split(",")):
        name, action = entry.split("=")
        kind, _, times = action.partition("@")
        if kind != "kill":
            raise ValueError(f"{VARIABLE}: {name} has the action {kind!r}; only kill is known")
        places[name] = int(times or 1)
    return places


_ARMED = _armed(os.environ.get(VARIABLE, ""))


def failpoint(name: str) -> None:
    """A place where everything before has happened and nothing after."""
    if name not in _ARMED:
        return
    _ARMED[name] -= 1
    if _ARMED[name] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
