"""The plots beside the page: medians as bars, the rounds as dots on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.measurement import Measurement
from benchmarks.ratios import READERS, Spread, rates
from benchmarks.result import Result

_LIMIT, _OURS = "#9aa5b1", "#1f6feb"
_ROLES = {
    "walsender": "#9aa5b1",
    "backends": "#c3cad2",
    "client": "#5b6770",
    "capture": "#1f6feb",
    "copy workers": "#6ea8fe",
    "broker": "#f2a65a",
    "spark jvm": "#c1440e",
    "apply python": "#2e7d32",
}
_PERCENTILES = {"p50": "#6ea8fe", "p95": "#1f6feb", "p99": "#0b3d91"}


def draw(result: Result, folder: Path) -> list[str]:
    """The names of the plots that the result has data for; each is a PNG in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, plot in _PLOTS.items():
        figure = Figure(figsize=(9, 4.5), layout="constrained")
        if plot(result, figure.subplots()):
            figure.savefig(folder / f"{name}.png", dpi=110)
            drawn.append(name)
    return drawn


def _drain(result: Result, axes: Axes) -> bool:
    names = {
        f"reader/{transport}/{mode}/backlog": f"{mode.replace('_', ' ')}\n{transport}"
        for transport in ("tcp", "unix")
        for mode in READERS
    }
    names |= {f"drain/{transport}/backlog": f"capture\n{transport}" for transport in ("tcp", "unix")}
    axes.set_title("A backlog drained: bare readers that discard, and capture to Kafka")
    return _bars(result, axes, names, "changes/s")


def _apply(result: Result, axes: Axes) -> bool:
    names = {
        "limit/copy_workers": "COPY\ndiscarded",
        "copy/markers": "copy\nto Kafka",
        "apply/copy": "copied rows\nto DuckDB",
        "apply/changes": "changes\nto DuckDB",
        "end_to_end": "end to end",
    }
    axes.set_title("From Postgres to Kafka, from Kafka to DuckDB, and the whole way")
    return _bars(result, axes, names, "rows/s")


def _segments(result: Result, axes: Axes) -> bool:
    names = [
        name
        for segment in ("inserts", "updates", "one_row", "mix", "wide")
        for transport in ("tcp", "unix")
        if (name := f"drain/{transport}/{segment}") in result.cases
    ]
    bottom = [0.0] * len(names)
    for role, colour in _ROLES.items():
        heights = [_microseconds(result.cases[name], role) for name in names]
        if any(heights):
            axes.bar(range(len(names)), heights, bottom=bottom, color=colour, label=role)
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    labels = [name.removeprefix("drain/").replace("_", " ").replace("/", "\n") for name in names]
    axes.set_xticks(range(len(names)), labels)
    axes.set_ylabel("us of CPU a change")
    axes.set_title("CPU of a drain, by process")
    if names:
        axes.legend()
    return bool(names)


def _latency(result: Result, axes: Axes) -> bool:
    names = [name for name in result.cases if name.startswith("latency/")]
    for offset, (share, colour) in enumerate(_PERCENTILES.items()):
        places = [place + (offset - 1) * 0.25 for place in range(len(names))]
        spreads = [Spread(tuple(run.figures[share] for run in result.cases[name])) for name in names]
        axes.bar(places, [each.median for each in spreads], 0.22, color=colour, label=share)
        _dots(axes, places, spreads)
    axes.set_xticks(range(len(names)), [f"{int(name.partition('/')[2]):,} changes/s" for name in names])
    axes.set_ylabel("s")
    axes.set_title("From commit in Postgres to visible in DuckDB")
    if names:
        axes.legend()
    return bool(names)


def _bars(result: Result, axes: Axes, names: Mapping[str, str], unit: str) -> bool:
    present = [name for name in names if result.cases.get(name)]
    spreads = [rates(result.cases[name]) for name in present]
    colours = [_LIMIT if name.startswith(("reader/", "limit/")) else _OURS for name in present]
    axes.bar(range(len(present)), [each.median for each in spreads], color=colours)
    _dots(axes, range(len(present)), spreads)
    axes.set_xticks(range(len(present)), [names[name] for name in present], fontsize=8)
    axes.set_ylabel(unit)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    return bool(present)


def _dots(axes: Axes, places: Sequence[float], spreads: Sequence[Spread]) -> None:
    for place, spread in zip(places, spreads, strict=True):
        axes.plot([place] * len(spread.values), spread.values, "k.", markersize=4)


def _microseconds(runs: Sequence[Measurement], role: str) -> float:
    return Spread(tuple(run.microseconds(role) for run in runs)).median


_PLOTS: dict[str, Callable[[Result, Axes], bool]] = {
    "drain": _drain,
    "segments": _segments,
    "apply": _apply,
    "latency": _latency,
}
