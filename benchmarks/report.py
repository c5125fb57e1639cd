"""The page docs/benchmarks.md: what stands between two marks is made from a result file, the rest by hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.measurement import Measurement
from benchmarks.ratios import DESTINATIONS, READERS, Spread, rates, ratios
from benchmarks.result import Result
from benchmarks.targets import Verdict, verdicts

_BLOCK = re.compile(r"(<!-- (\w+): made by `make bench` -->\n).*?(<!-- end -->)", re.DOTALL)
_SEGMENTS = {
    "backlog": "inserts, updates and one-row transactions",
    "inserts": "inserts",
    "updates": "updates",
    "one_row": "one-row transactions",
    "mix": "mix of tables",
    "wide": "100 columns",
}
_MODES = dict(zip(READERS, ("blocking", "low-water mark", "nap of 1 ms", "without rest"), strict=True))
_MANY = 1_000


def page(result: Result, docs: Path) -> None:
    """Renders the blocks of the page anew, and the plots beside it."""
    from benchmarks.plots import draw  # noqa: PLC0415 -- matplotlib is an extra

    drawn = draw(result, docs / "images")
    path = docs / "benchmarks.md"
    path.write_text(rendered(path.read_text(), result, drawn))


def rendered(text: str, result: Result, plots: Sequence[str] = ()) -> str:
    """The text with every block made from the result; raises KeyError for a block that nobody makes."""

    def block(found: re.Match[str]) -> str:
        body = _BLOCKS[found[2]](result)
        images = [f"![{name}](images/{name}.png)\n" for name in plots if name == found[2]]
        return "\n".join([found[1], body, *images, found[3]])

    return _BLOCK.sub(block, text)


def _run(result: Result) -> str:
    machine = result.machine
    load = ", ".join(f"{each:.2f}" for each in machine["load_at_start"])
    rows = [
        ("commit", f"`{result.commit}`"),
        ("begun", f"{datetime.fromtimestamp(result.started, UTC):%Y-%m-%d %H:%M} UTC"),
        ("took", f"{result.seconds / 60:.0f} minutes, {max(map(len, result.cases.values()), default=0)} rounds"),
        ("machine", f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB"),
        ("system", f"{machine['system']}; load when it began (1, 5, 15 minutes): {load}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in result.versions.items())),
    ]
    if result.scale != 1.0:
        rows.append(("sizes", f"times {result.scale:g}: **not a full run**"))
    return _table(("this run", ""), rows)


def _targets(result: Result) -> str:
    return _table(
        ("what", "target", "measured", "repetitions", ""),
        [(v.name, v.target, v.text, _values(v.spread, v.digits), _met(v)) for v in verdicts(result.cases)],
    )


def _ratios(result: Result) -> str:
    found = ratios(result.cases)
    rows = [
        (name, f"{Spread(tuple(values)).median:.2f}", _values(Spread(tuple(values)), 2))
        for name, values in found.items()
    ]
    return _table(("ratio", "median", "rounds"), rows)


def _limits(result: Result) -> str:
    names = {
        "limit/copy_1": "`COPY TO STDOUT` discarded, 1 connection",
        "limit/copy_workers": "the same, 2 connections",
        "limit/produce": "confluent-kafka `produce`, 200 bytes",
        "limit/produce_batch": "confluent-kafka `produce_batch`, 200 bytes",
    }
    return _rates(result, names)


def _drain(result: Result) -> str:
    names: dict[str, str] = {}
    for transport in ("tcp", "unix"):
        for mode, label in _MODES.items():
            names[f"reader/{transport}/{mode}/backlog"] = f"bare reader, {transport}, {label}"
        names[f"drain/{transport}/backlog"] = f"**capture to Kafka, {transport}**"
        names[f"drain/{transport}/steady"] = f"capture to Kafka, {transport}, from its first checkpoint with rows"
    return _rates(result, names)


def _segments(result: Result) -> str:
    names: dict[str, str] = {}
    for segment, label in _SEGMENTS.items():
        for transport in ("tcp", "unix"):
            for mode, reader in _MODES.items():
                names[f"reader/{transport}/{mode}/{segment}"] = f"{label}: bare reader, {transport}, {reader}"
            names[f"drain/{transport}/{segment}"] = f"{label}: **capture, {transport}**"
    return _rates(result, {name: label for name, label in names.items() if not name.endswith("/backlog")})


def _copy(result: Result) -> str:
    names = {
        "limit/copy_workers": "`COPY TO STDOUT` discarded, 2 connections",
        "copy/markers": "**copy to Kafka**, from marker to marker",
        "copy/flow": "**copy to Kafka**, while records flow",
    }
    return _rates(result, names)


def _apply(result: Result) -> str:
    names = {
        "apply/copy": "copied rows",
        "apply/copy/warm": "**copied rows**, warm",
        "apply/changes": f"changes: {_SEGMENTS['backlog']}",
        "apply/changes/warm": "**changes**, warm",
    }
    names |= {f"apply/changes/{name}": f"changes: {label}" for name, label in _SEGMENTS.items()}
    names["end_to_end"] = "**end to end**, writing included"
    text = _rates(result, names)
    for name, size in (("apply/tiny", "A tiny interval"), ("apply/tiny/six_tables", "One of six tables")):
        tiny = result.cases.get(name, [])
        if not tiny:
            continue
        interval = Spread(tuple(each.figures["interval"] for each in tiny))
        waited = Spread(tuple(each.figures["emitted_to_applied_p50"] for each in tiny))
        text += (
            f"\n{size} on a warm apply takes {interval.median:.2f} s ({_values(interval, 2)}); from capture's "
            f"checkpoint to the destination's progress, waiting included, {waited.median:.2f} s "
            f"({_values(waited, 2)}).\n"
        )
    since = [name for name, runs in result.cases.items() if any("from_process_start" in run.figures for run in runs)]
    if since:
        text += f"\nCounted from the start of the process, because one interval held most rows: {', '.join(since)}.\n"
    return text


def _destinations(result: Result) -> str:
    names: dict[str, str] = {}
    for kind in DESTINATIONS:
        names[f"destinations/{kind}/ours"] = f"**write_events, {kind}**"
        names[f"destinations/{kind}/raw"] = f"raw merge, {kind}"
    return _rates(result, names)


def _latency(result: Result) -> str:
    rows = []
    for name, runs in result.cases.items():
        if name.startswith("latency/"):
            figures = [Spread(tuple(run.figures[each] for run in runs)) for each in ("p50", "p95", "p99", "worst")]
            achieved = Spread(tuple(run.figures["achieved"] for run in runs)).median
            cells = [f"{each.median:.2f} ({_values(each, 2)})" for each in figures]
            rows.append((f"{int(name.partition('/')[2]):,}", f"{achieved:,.0f}", *cells))
    return _table(("changes/s wanted", "written", "p50 s", "p95 s", "p99 s", "worst s"), rows)


def _memory(result: Result) -> str:
    rows = []
    names = {
        "memory/ordinary": "capture, after a start and {count:,} rows",
        "memory/one_transaction": "capture, after one transaction of {count:,} rows",
        "memory/large_values": "capture, after one transaction of {count:,} values of 1 MB",
        "memory/huge_transaction": "capture, after one transaction of {count:,} rows",
    }
    for name, label in names.items():
        runs = result.cases.get(name, [])
        rows += [(label.format(count=run.count), _megabytes(run.memory["capture"])) for run in runs]
    for name, label in {
        "drain/tcp/backlog": "draining",
        "copy/markers": "copying",
        "apply/copy": "applying a copy",
        "apply/changes": "applying changes",
        "latency/5000": "at 5,000 changes/s",
    }.items():
        for role in ("capture", "copy workers", "spark jvm", "apply python", "broker"):
            peaks = [run.memory[role] for run in result.cases.get(name, []) if role in run.memory]
            if peaks:
                rows.append((f"{role}, {label}", _megabytes(max(peaks))))
    return _table(("largest resident set", "MB"), rows)


def _rates(result: Result, names: dict[str, str]) -> str:
    """Rate and CPU of each case that was measured."""
    rows = []
    for name, label in names.items():
        runs = result.cases.get(name)
        if runs:
            spread = rates(runs)
            rows.append((label, f"{_thousands(spread.median)} ({_rounds(spread)})", _cpu(runs)))
    return _table(("what", "per second: median (rounds)", "CPU, us each"), rows)


def _cpu(runs: Sequence[Measurement]) -> str:
    """Microseconds for each thing counted, by role; roles below a twentieth of a microsecond are left out."""
    roles = sorted({role for run in runs for role in run.cpu})
    spent = {role: Spread(tuple(run.microseconds(role) for run in runs)).median for role in roles}
    return ", ".join(f"{role} {each:.1f}" for role, each in spent.items() if each >= 0.05) or "-"


def _met(verdict: Verdict) -> str:
    return "met" if verdict.met else "**not met**"


def _values(spread: Spread, digits: int) -> str:
    return " ".join(f"{value:.{digits}f}" for value in spread.values)


def _rounds(spread: Spread) -> str:
    return " ".join(_thousands(value) for value in spread.values)


def _thousands(value: float) -> str:
    return f"{value / _MANY:,.1f}k" if value >= _MANY else f"{value:.0f}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


_BLOCKS: dict[str, Callable[[Result], str]] = {
    "run": _run,
    "targets": _targets,
    "ratios": _ratios,
    "limits": _limits,
    "drain": _drain,
    "segments": _segments,
    "copy": _copy,
    "apply": _apply,
    "destinations": _destinations,
    "latency": _latency,
    "memory": _memory,
}
