"""What one repetition of one case gives: counts, seconds, CPU by role, memory by role. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Measurement:
    """`count` things in `seconds`; `figures` holds what is not a rate, such as percentiles."""

    count: int
    seconds: float
    cpu: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds, user and system, all threads, by role."""
    memory: Mapping[str, int] = field(default_factory=dict)
    """Largest resident set in bytes (VmHWM), by role."""
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return self.count / self.seconds if self.seconds > 0 else 0.0

    def microseconds(self, role: str) -> float:
        """CPU of a role for each thing counted."""
        return self.cpu.get(role, 0.0) / self.count * 1e6 if self.count else 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "seconds": round(self.seconds, 4),
            "rate": round(self.rate, 1),
            "cpu": {role: round(seconds, 3) for role, seconds in self.cpu.items()},
            "memory": dict(self.memory),
            "figures": {name: round(value, 5) for name, value in self.figures.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measurement:
        known = {name: data[name] for name in ("count", "seconds", "cpu", "memory", "figures")}
        return cls(**known)


Cases = Mapping[str, list[Measurement]]
"""The repetitions of each case, in the order of the rounds."""


@dataclass(frozen=True)
class Machine:
    """Where a run was made."""

    cpu: str
    cores: int
    memory_bytes: int
    system: str
    load_at_start: tuple[float, float, float]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
