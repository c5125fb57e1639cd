"""A walk through failpoints: which places, and what happens at each.

By default each place goes wrong once: what stands before an effect fails, what stands after it is killed. The whole
walk, `make test-failpoints`, does both at every place.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from schemas.failpoint_places import PLACES, is_after

WHOLE = os.environ.get("PENSTOCK_TEST_WALK") == "whole"


class Step(NamedTuple):
    place: str
    action: str
    passes: int = 1

    @property
    def group(self) -> str:
        """What the place is about."""
        return self.place.partition(".")[0]

    @property
    def kills(self) -> bool:
        return self.action == "kill"


def walk(groups: Iterable[str]) -> Iterator[Step]:
    """The places of these groups, one group after the other."""
    for group in groups:
        for place in PLACES:
            if place.startswith(f"{group}."):
                fault = "drop" if is_after(place) else "error"
                for action in ("kill", fault) if WHOLE else ("kill" if is_after(place) else fault,):
                    yield Step(place, action)


def told(test: str, steps: Iterable[Step]) -> None:
    """What was walked, for whoever reads the output of the run."""
    done = list(steps)
    places = len({step.place for step in done})
    print(f"\n{test}: {len(done)} combinations of {places} places and what goes wrong there")  # noqa: T201 -- asked for
