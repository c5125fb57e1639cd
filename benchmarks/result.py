"""One run as a file: where, with what, every repetition, and the ratios of a quick run beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.measurement import Measurement
from benchmarks.ratios import best, ratios

_FORMAT = 1


@dataclass(frozen=True)
class Result:
    """A run. `quick`: the best repetition of each ratio of a quick run on the same machine and commit."""

    commit: str
    started: float
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    scale: float
    seconds: float = 0.0
    cases: dict[str, list[Measurement]] = field(default_factory=dict)
    quick: Mapping[str, float] = field(default_factory=dict)

    def with_quick(self, run: Result) -> Result:
        return replace(self, quick=best(ratios(run.cases)))

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = {
            "format": _FORMAT,
            "commit": self.commit,
            "started": self.started,
            "seconds": round(self.seconds, 1),
            "scale": self.scale,
            "machine": dict(self.machine),
            "versions": dict(self.versions),
            "ratios": {name: [round(value, 4) for value in values] for name, values in ratios(self.cases).items()},
            "quick": {name: round(value, 4) for name, value in self.quick.items()},
            "cases": {name: [each.to_json() for each in runs] for name, runs in self.cases.items()},
        }
        path.write_text(json.dumps(whole, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Result:
        whole = json.loads(path.read_text())
        if whole["format"] != _FORMAT:
            raise ValueError(f"{path} has format {whole['format']}, not {_FORMAT}")
        return cls(
            commit=whole["commit"],
            started=whole["started"],
            machine=whole["machine"],
            versions=whole["versions"],
            scale=whole["scale"],
            seconds=whole["seconds"],
            cases={name: [Measurement.from_json(each) for each in runs] for name, runs in whole["cases"].items()},
            quick=whole["quick"],
        )


def committed(path: Path) -> Result | None:
    """The result in a file, or the newest one in a folder, that has a quick run in it."""
    files = sorted(path.glob("*.json")) if path.is_dir() else [path] if path.exists() else []
    found = [Result.load(file) for file in files]
    return max((each for each in found if each.quick), key=lambda each: each.started, default=None)
