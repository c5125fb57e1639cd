"""Cases that share what they prepare. A run goes round: every step of every group, then all again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from benchmarks.measurement import Measurement


class Step(NamedTuple):
    """Called with the number of the round; returns what it measured, by case."""

    name: str
    run: Callable[[int], Mapping[str, Measurement]]


class Group(Protocol):
    """Prepared once, closed once."""

    @property
    def name(self) -> str:
        """What `--only` calls it."""

    def prepare(self) -> None: ...

    def steps(self) -> list[Step]: ...

    def close(self) -> None: ...
