"""Medians, spreads and ratios, and whether a ratio has become worse. Pure.

A ratio is made in each round from measurements of that round, which ran within minutes of each other; the ratios of
the rounds are what is reported. Figures of different runs are never divided by each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.measurement import Cases, Measurement

TOLERANCE = 0.20
READERS = ("blocking", "low_water", "nap", "spin")
DESTINATIONS = ("duckdb", "ducklake", "postgres", "delta", "iceberg", "clickhouse", "parquet")


@dataclass(frozen=True)
class Spread:
    """Repetitions of one figure."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0 to 1) of all values do not exceed."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    rank = max(1, -(-len(ordered) * share // 1))
    return ordered[int(rank) - 1]


def rates(measurements: Sequence[Measurement]) -> Spread:
    return Spread(tuple(each.rate for each in measurements))


def by_round(above: Sequence[float], below: Sequence[float]) -> list[float]:
    return [high / low for high, low in zip(above, below, strict=False) if low > 0]


def best_reader(cases: Cases, transport: str, segment: str) -> list[float]:
    """The rates, round by round, of the kind of bare reader whose median is the highest. The highest rate of each round
    would be the luckiest of four readings, and be compared with one reading of ours."""
    names = [f"reader/{transport}/{mode}/{segment}" for mode in READERS]
    readers = [[each.rate for each in cases[name]] for name in names if cases.get(name)]
    return max(readers, key=median, default=[])


def ratios(cases: Cases) -> dict[str, list[float]]:
    """Every ratio that these cases allow, round by round. More is better in all of them."""
    found: dict[str, list[float]] = {}
    for transport in ("tcp", "unix"):
        for segment in ("backlog", "steady", "inserts", "updates", "one_row", "mix", "wide"):
            same = "backlog" if segment == "steady" else segment
            readers = best_reader(cases, transport, same)
            drained = [each.rate for each in cases.get(f"drain/{transport}/{segment}", [])]
            found[f"drain/{transport}/{segment} : best bare reader"] = by_round(drained, readers)
    for name in ("copy/markers", "copy/flow"):
        copied = cases.get(name, [])
        limit = [each.rate for each in cases.get("limit/copy_workers", [])]
        found[f"{name} : COPY discarded, as many connections"] = by_round([each.rate for each in copied], limit)
    discarded = [each.rate for each in cases.get("limit/copy_1", [])]
    applied = [each.rate for each in cases.get("apply/changes", [])]
    found["apply/changes : best bare reader, unix"] = by_round(applied, best_reader(cases, "unix", "backlog"))
    found["apply/copy : COPY discarded, 1 connection"] = by_round(
        [each.rate for each in cases.get("apply/copy", [])], discarded
    )
    for kind in DESTINATIONS:
        ours, raw = ([each.rate for each in cases.get(f"destinations/{kind}/{who}", [])] for who in ("ours", "raw"))
        found[f"write_events/{kind} : raw merge"] = by_round(ours, raw)
    return {name: values for name, values in found.items() if values}


def best(found: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The best repetition of each ratio: what noise took away from the others does not count."""
    return {name: max(values) for name, values in found.items()}


@dataclass(frozen=True)
class Comparison:
    """A ratio now, and in the committed result."""

    name: str
    before: float
    now: float | None

    @property
    def worse(self) -> bool:
        """Also where the ratio is no longer measured: a check that silently lost its subject is none."""
        return self.now is None or self.now < self.before * (1 - TOLERANCE)


def compare(before: Mapping[str, float], now: Mapping[str, float]) -> list[Comparison]:
    """More than a bare reader has is not asked for: a ratio above 1 says that the machine became faster in between."""
    return [
        Comparison(name, min(value, 1.0) if "bare reader" in name else value, now.get(name))
        for name, value in before.items()
    ]


def comparison_table(comparisons: Iterable[Comparison]) -> str:
    lines = [f"{'ratio':64} {'committed':>9} {'now':>9} {'change':>8}"]
    for each in comparisons:
        now = f"{each.now:9.3f}" if each.now is not None else f"{'missing':>9}"
        change = f"{(each.now / each.before - 1) * 100:+7.1f}%" if each.now is not None and each.before else f"{'':8}"
        lines.append(f"{each.name:64} {each.before:9.3f} {now} {change}{'  WORSE' if each.worse else ''}")
    return "\n".join(lines)
