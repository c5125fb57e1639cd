"""A soak as a file, its bounds, and the page docs/soak.md with a plot. What is stored is judged again when it is read.

Growth is the median of the last fifth of the samples less that of the first fifth after the warm-up, which is a third
of the run: Kafka removes old records in steps, and a heap breathes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

_MB = 1_000_000
BOUNDS: Mapping[str, tuple[int, str]] = {
    "capture, resident bytes": (20 * _MB, "no row is kept; Python's and librdkafka's allocators"),
    "capture, descriptors": (5, ""),
    "capture, threads": (3, "a snapshot and a watch come and go"),
    "apply python, resident bytes": (60 * _MB, "Arrow's pool keeps the largest interval"),
    "apply python, descriptors": (10, ""),
    "apply python, threads": (5, ""),
    "spark jvm, resident bytes": (300 * _MB, "its heap, `apply.driver_memory` = 1g here, fills before it is collected"),
    "spark jvm, descriptors": (60, "Kafka consumers and jars that are opened late"),
    "spark jvm, threads": (40, "pools that grow to their size"),
    "query folder, bytes": (2 * _MB, "Spark keeps the last 100 batches"),
    "other scratch files, bytes": (20 * _MB, "shuffle files until they are collected"),
    "state store, bytes": (_MB, "copies and shapes, not changes"),
    "duckdb file, bytes": (80 * _MB, "the table has as many rows all the time; room that was freed is used again"),
    "topic checkpoints, bytes": (5 * _MB, "`kafka.retention` = 10 minutes here"),
    "topic feedback, bytes": (5 * _MB, "compacted every ten minutes"),
    "topic schemas, bytes": (100_000, "one record for each shape"),
    "topic control, bytes": (100_000, "one record for each command"),
    "topic of changes, bytes": (60 * _MB, "`kafka.retention` = 10 minutes here"),
}
"""How much of each may be there more than after the warm-up, and why any."""
_BEGIN, _END = "<!-- soak: begin -->", "<!-- soak: end -->"


@dataclass(frozen=True)
class Soak:
    """One run: what was seen, at which second."""

    commit: str
    started: float
    machine: Mapping[str, Any]
    changes: int
    """Written at the source, and all of them applied."""
    seconds: list[float]
    samples: dict[str, list[int]]

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self)) + "\n")

    @classmethod
    def load(cls, path: Path) -> Soak:
        return cls(**json.loads(path.read_text()))

    def growth(self, name: str) -> int:
        warm = self.samples[name][len(self.seconds) // 3 :]
        fifth = max(1, len(warm) // 5)
        return round(median(warm[-fifth:]) - median(warm[:fifth]))

    def broken(self) -> list[str]:
        """The bounds that did not hold."""
        return [name for name, (most, _) in BOUNDS.items() if name in self.samples and self.growth(name) > most]

    def table(self) -> str:
        lines = ["| what | after the warm-up | at the end | growth | bound | why any |", "|---|---|---|---|---|---|"]
        for name, (most, why) in BOUNDS.items():
            if name in self.samples:
                seen, growth = self.samples[name], self.growth(name)
                first = seen[len(seen) // 3]
                mark = "" if growth <= most else " **broken**"
                figures = [_figure(name, each) for each in (first, seen[-1], growth, most)]
                lines.append(f"| {name} | {' | '.join(figures[:3])}{mark} | {figures[3]} | {why} |")
        return "\n".join(lines)


def write_page(soak: Soak, docs: Path) -> None:
    """The part of the page that is made from a run, and its plot."""
    path = docs / "soak.md"
    before, _, rest = path.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    minutes, machine = soak.seconds[-1] / 60, soak.machine
    told = (
        f"{minutes:.0f} minutes from {datetime.fromtimestamp(soak.started, UTC):%Y-%m-%d %H:%M} UTC, commit "
        f"`{soak.commit}`, {machine['cpu']}, {machine['cores']} cores; {soak.changes:,} changes, "
        f"{soak.changes / soak.seconds[-1]:.0f} a second."
    )
    _draw(soak, docs / "images" / "soak.png")
    parts = [told, soak.table(), "![what grew and what did not](images/soak.png)"]
    path.write_text(f"{before}{_BEGIN}\n\n" + "\n\n".join(parts) + f"\n\n{_END}{after}")


def _figure(name: str, value: int) -> str:
    if not name.endswith("bytes"):
        return f"{value:,}"
    return f"{value / _MB:,.1f} MB" if abs(value) >= _MB else f"{value / 1000:,.0f} kB"


def _draw(soak: Soak, path: Path) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415 -- an extra

    names = [name for name in BOUNDS if name in soak.samples]
    figure = Figure(figsize=(12, 14), layout="constrained")
    minutes = [second / 60 for second in soak.seconds]
    for axes, name in zip(figure.subplots((len(names) + 2) // 3, 3).flat, names, strict=False):
        scale = _MB if name.endswith("bytes") else 1
        values = [value / scale for value in soak.samples[name]]
        axes.plot(minutes, values, color="#1f6feb", linewidth=1)
        axes.axvline(minutes[len(minutes) // 3], color="#9aa5b1", linewidth=0.8)
        axes.set_ylim(0, 1.1 * max(values) or 1)
        axes.set_title(name.replace("bytes", "MB"), fontsize=8)
        axes.tick_params(labelsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)
