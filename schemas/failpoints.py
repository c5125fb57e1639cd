"""Named places before and after every durable effect, where a test may make something go wrong.

Armed by the environment, `PENSTOCK_TEST_FAILPOINTS=apply.committed=kill@3,status.reporting=error`, or by a test in its
own process. `@3`: the third time that the place is passed; then, and only then, it

    kill      ends the process, as SIGKILL does
    hang      never goes on
    delay:2   goes on after so many seconds
    error     raises what the effect raises where it fails; only at a place before it
    drop      raises the same though the effect succeeded: the answer was lost; only at a place after it

Not armed, a place costs one look into an empty dictionary. Names are in failpoint_places.py.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from schemas.failpoint_places import PLACES, is_after
from schemas.settings import closest

VARIABLE = "PENSTOCK_TEST_FAILPOINTS"


@dataclass
class Armed:
    """What happens at a place, once, when it is passed for this time. It is given what the effect would raise."""

    happens: Callable[[Exception], object]
    passes: int = 1
    happened: bool = False


ARMED: dict[str, Armed] = {}
"""By the name of the place, in this process."""


def failpoint(name: str, error: type[Exception]) -> None:
    """A place where everything before has happened and nothing after. `error`: as the effect itself would raise."""
    armed = ARMED.get(name)
    if armed is None:
        return
    armed.passes -= 1
    if armed.passes == 0:
        armed.happened = True
        armed.happens(error(f"Failpoint {name}."))


def arm(text: str) -> None:
    """Instead of what was armed before. ValueError: a name or an action that there is not."""
    ARMED.clear()
    for entry in filter(None, text.split(",")):
        name, _, told = entry.partition("=")
        action, _, passes = told.partition("@")
        ARMED[name] = armed(name, action, int(passes or 1))


def armed(name: str, action: str, passes: int = 1) -> Armed:
    """The action, as written for the environment; it is told on stderr when it happens."""
    require_known(name)
    happens = _happens(name, action)

    def told(error: Exception) -> None:
        sys.stderr.write(json.dumps({"event": "failpoint", "place": name, "action": action}) + "\n")
        sys.stderr.flush()
        happens(error)

    return Armed(told, passes)


def require_known(name: str) -> None:
    if name not in PLACES:
        near = closest(name, list(PLACES))
        raise ValueError(f"There is no failpoint {name!r}" + (f"; did you mean {near!r}?" if near else "."))


def _happens(name: str, action: str) -> Callable[[Exception], object]:
    kind, _, seconds = action.partition(":")
    match kind:
        case "kill":
            return lambda _: os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            return lambda _: _hang()
        case "delay":
            wait = float(seconds)
            return lambda _: time.sleep(wait)
        case "error" | "drop":
            wanted = "drop" if is_after(name) else "error"
            if kind != wanted:
                moment = "after" if is_after(name) else "before"
                raise ValueError(f"Failpoint {name} stands {moment} its effect: arm it with {wanted!r}, not {kind!r}.")
            return _raise
        case _:
            near = closest(kind, ["kill", "hang", "delay", "error", "drop"])
            hint = f"did you mean {near!r}?" if near else "there are kill, hang, delay:SECONDS, error and drop."
            raise ValueError(f"Failpoint {name} knows no action {kind!r}; {hint}")


def _raise(error: Exception) -> None:
    raise error


def _hang() -> None:
    while True:
        time.sleep(3600)


arm(os.environ.get(VARIABLE, ""))
