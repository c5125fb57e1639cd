"""What a run found, as JSON and as a table."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Round:
    """One round. `seed` alone begins the same one again."""

    seed: int
    faults: list[str] = field(default_factory=list)
    rows: int = 0
    looks: int = 0
    catch_up_seconds: float = 0.0
    failures: list[str] = field(default_factory=list)


@dataclass
class Result:
    """One run."""

    seed: int
    commit: str
    machine: str
    rounds: list[Round] = field(default_factory=list)
    restarts: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    capture_peak_mb: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    """Of no round: the processes', over the whole run."""

    @property
    def failed(self) -> bool:
        return bool(self.failures) or any(each.failures for each in self.rounds)

    @property
    def failures_told(self) -> list[str]:
        return [f"`SEED={each.seed}`: {what}" for each in self.rounds for what in each.failures] + self.failures

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> Result:
        told = json.loads(path.read_text())
        return cls(**{**told, "rounds": [Round(**each) for each in told["rounds"]]})

    def table(self) -> str:
        """Markdown."""
        done = self.rounds
        faults = Counter(fault for each in done for fault in each.faults)
        waits = sorted(each.catch_up_seconds for each in done) or [0.0]
        lines = [
            ("rounds", str(len(done))),
            ("minutes", f"{self.seconds / 60:.1f}"),
            ("faults", f"{faults.total()} of {len(faults)} kinds"),
            ("rows written", f"{sum(each.rows for each in done):,}"),
            ("looks at the destinations", f"{sum(each.looks for each in done):,}"),
            ("restarts", ", ".join(f"{name} {count}" for name, count in self.restarts.items())),
            ("seconds to catch up", f"{waits[len(waits) // 2]:.0f} (median), {waits[-1]:.0f} (most)"),
            ("memory of capture, at most", f"{self.capture_peak_mb} MB"),
            ("failures", "<br>".join(self.failures_told) or "none"),
        ]
        head = [f"Seed {self.seed}, commit {self.commit}, {self.machine}.", "", "| what | |", "|---|---|"]
        kinds = ["", "| fault | times |", "|---|---|", *(f"| {name} | {faults[name]} |" for name in sorted(faults))]
        reasons = [f"- Ended, {count} times: {reason}" for reason, count in self.reasons.items()]
        left_out = [f"- Not tried: {name}. {why}" for name, why in self.skipped.items() if not faults[name]]
        return "\n".join([*head, *(f"| {name} | {value} |" for name, value in lines), *kinds, "", *reasons, *left_out])
