"""What penstock is held to, and whether a run met it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.measurement import Cases, Measurement
from benchmarks.ratios import DESTINATIONS, Spread, ratios


@dataclass(frozen=True)
class Verdict:
    """A target and what a run gave; the median decides."""

    name: str
    limit: float
    at_least: bool
    spread: Spread
    digits: int

    @property
    def met(self) -> bool:
        return self.spread.median >= self.limit if self.at_least else self.spread.median <= self.limit

    @property
    def target(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.limit:,.{self.digits}f}"

    @property
    def text(self) -> str:
        return f"{self.spread.median:,.{self.digits}f}"


def verdicts(cases: Cases) -> list[Verdict]:
    """Every target that these cases can be held to."""
    return [*_ratio_verdicts(cases), *_case_verdicts(cases)]


def _ratio_verdicts(cases: Cases) -> Iterator[Verdict]:
    found = ratios(cases)
    wanted = {
        "drain/tcp/backlog : best bare reader": 0.80,
        "drain/tcp/steady : best bare reader": 0.80,
        "drain/unix/backlog : best bare reader": 0.80,
        "drain/unix/steady : best bare reader": 0.80,
        "copy/markers : COPY discarded, as many connections": 0.50,
        "copy/flow : COPY discarded, as many connections": 0.50,
        **{f"write_events/{kind} : raw merge": 0.50 for kind in DESTINATIONS},
    }
    for name, limit in wanted.items():
        if name in found:
            yield Verdict(name, limit, True, Spread(tuple(found[name])), 2)


def _case_verdicts(cases: Cases) -> Iterator[Verdict]:
    def capture(run: Measurement) -> float:
        return run.microseconds("capture")

    def figure(name: str) -> Callable[[Measurement], float]:
        return lambda run: run.figures[name]

    def rate(run: Measurement) -> float:
        return run.rate

    wanted: list[tuple[str, str, float, bool, int, Callable[[Measurement], float]]] = [
        ("capture's CPU a change, inserts, tcp, us", "drain/tcp/inserts", 5, False, 1, capture),
        ("capture's CPU a change, inserts, unix, us", "drain/unix/inserts", 5, False, 1, capture),
        ("capture's CPU a change, updates, tcp, us", "drain/tcp/updates", 5, False, 1, capture),
        ("capture's CPU a change, updates, unix, us", "drain/unix/updates", 5, False, 1, capture),
        ("capture's CPU a one-row transaction, tcp, us", "drain/tcp/one_row", 15, False, 1, capture),
        ("capture's CPU a one-row transaction, unix, us", "drain/unix/one_row", 15, False, 1, capture),
        ("changes to DuckDB, warm, rows/s", "apply/changes/warm", 80_000, True, 0, rate),
        ("copied rows to DuckDB, warm, rows/s", "apply/copy/warm", 130_000, True, 0, rate),
        ("a tiny interval, warm, s", "apply/tiny", 0.5, False, 2, figure("interval")),
        ("a tiny interval of six tables, warm, s", "apply/tiny/six_tables", 0.5, False, 2, figure("interval")),
        ("commit to visible at 1,000/s, p50, s", "latency/1000", 1.5, False, 2, figure("p50")),
        ("commit to visible at 1,000/s, p99, s", "latency/1000", 4.0, False, 2, figure("p99")),
    ]
    for name, case, limit, at_least, digits, value in wanted:
        if cases.get(case):
            yield Verdict(name, limit, at_least, Spread(tuple(value(run) for run in cases[case])), digits)
