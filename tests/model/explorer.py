"""Two ways through the states of a world: every one within a small scope, and long random walks.

Both lead a new world along a list of steps, so a list is all that is needed to see a violation again. Random walks are
seeded here and not drawn by hypothesis: what is possible next depends on the state, walks are long, and a shrunk list
of steps is found as fast by leaving out one step after the other.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from dataclasses import dataclass

from tests.model.applying import Violation
from tests.model.state import state_of, twin
from tests.model.world import LEVEL, Scope, Step, World

_FAULTS = {
    "crash",
    "take over",
    "worker dies",
    "lands twice",
    "apply crashes",
    "apply taken over",
    "take and die",
    "work and die",
    "leave",
    "join",
    "resync",
    "rewrite",
    "policy",
    "destination joins",
}
"""Chosen less often than what makes the pipeline go on."""
_FAULT = 0.3
_WEIGHTS = (0.05, 1.0, 5.0)


@dataclass(frozen=True)
class Found:
    """A violation, and the steps that lead to it."""

    reason: str
    steps: tuple[Step, ...]
    scope: Scope

    def __str__(self) -> str:
        return "\n".join([self.reason, f"in {self.scope}", *(f"  {' '.join(step)}" for step in self.steps)])


@dataclass
class Explored:
    """What was seen. `states` counts those that differ."""

    states: int = 0
    steps: int = 0
    depth: int = 0
    ends: int = 0
    """How often all came to rest; breadth first, how many states were passed on the way there."""
    found: Found | None = None
    complete: bool = False
    """Whether no step leads to a state that was not seen."""


def _violation(scope: Scope, steps: tuple[Step, ...]) -> str | None:
    """What breaks on the way, or in the end. Steps that are not possible there are passed over."""
    world = World(scope)
    try:
        for step in steps:
            if step == LEVEL or step in world.steps():
                world.do(step)
        world.settle()
    except Violation as violation:
        return str(violation)
    return None


def shortened(found: Found) -> Found:
    """Without the steps that are not needed for a violation."""
    steps, place = found.steps, 0
    while place < len(steps):
        fewer = steps[:place] + steps[place + 1 :]
        if _violation(found.scope, fewer) is not None:
            steps = fewer
        else:
            place += 1
    return Found(_violation(found.scope, steps) or found.reason, steps, found.scope)


def walk(scope: Scope, seed: int, length: int, explored: Explored) -> None:
    """One random way, and its end."""
    chance = random.Random(seed)  # noqa: S311 -- chance that can be repeated, not a secret
    world, taken, taste = World(scope), list[Step](), _Taste(chance)
    try:
        if chance.random() < scope.level:
            taken.append(LEVEL)
            world.do(LEVEL)
        for _ in range(length):
            possible = world.steps()
            if not possible:
                break
            step = taste.chosen(possible)
            taken.append(step)
            world.do(step)
            explored.steps += 1
        world.settle()
        explored.ends += 1
    except Violation as violation:
        explored.found = Found(str(violation), tuple(taken), scope)


class _Taste:
    """Which steps a walk likes, drawn anew for each: a walk that takes some hardly ever, and others again and again,
    comes to places where one that takes all of them evenly does not."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._weights: dict[Step, float] = {}

    def chosen(self, steps: list[Step]) -> Step:
        return self._chance.choices(steps, [self._weight(step) for step in steps])[0]

    def _weight(self, step: Step) -> float:
        if step not in self._weights:
            self._weights[step] = self._chance.choice(_WEIGHTS) * (_FAULT if step[0] in _FAULTS else 1)
        return self._weights[step]


def walks(scopes: list[Scope], seeds: Iterable[int], length: int, seconds: float) -> Explored:
    """Random walks through one scope after the other, until time is up or one finds a violation."""
    explored, until = Explored(), time.process_time() + seconds
    for seed in seeds:
        walk(scopes[seed % len(scopes)], seed, length, explored)
        if explored.found is not None or time.process_time() > until:
            break
    return explored


def breadth_first(scope: Scope, depth: int, seconds: float, prologue: tuple[Step, ...] = ()) -> Explored:
    """Every state that so many steps lead to from the end of the prologue; of each, what it comes to in the end."""
    explored, until = Explored(), time.process_time() + seconds
    first = World(scope)
    for step in prologue:
        first.do(step)
    seen, settled = {state_of(first)}, set[int]()
    level: list[tuple[World, tuple[Step, ...]]] = [(first, prologue)]
    while level and explored.depth < depth:
        explored.depth += 1
        following = []
        for before, path in level:
            for step in before.steps():
                if time.process_time() > until:
                    return explored
                explored.steps += 1
                world = twin(before)
                try:
                    world.do(step)
                    state = state_of(world)
                    if state not in seen:
                        seen.add(state)
                        following.append((world, (*path, step)))
                        _settle(twin(world), settled)
                except Violation as violation:
                    explored.found = Found(str(violation), (*path, step), scope)
                    return explored
                explored.states, explored.ends = len(seen), len(settled)
        level = following
    explored.complete = not level
    return explored


def _settle(world: World, settled: set[int]) -> None:
    """Many states have one end: it is looked at once."""
    passed = []
    for _ in world.settling():
        state = state_of(world)
        if state in settled:
            break
        passed.append(state)
    settled.update(passed)
