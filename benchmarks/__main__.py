"""`python -m benchmarks`: runs the cases round by round, writes the result, renders the page, compares ratios."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import structlog

from benchmarks.backlog_cases import BacklogGroup
from benchmarks.copy_cases import CopyGroup
from benchmarks.destination_cases import DestinationGroup
from benchmarks.group import Group
from benchmarks.latency import LiveGroup
from benchmarks.limits import ProduceGroup
from benchmarks.machine import commit, machine, versions
from benchmarks.measurement import Measurement
from benchmarks.memory import MemoryGroup
from benchmarks.processes import PROCESS
from benchmarks.ratios import DESTINATIONS, best, compare, comparison_table, ratios
from benchmarks.replay_cases import ReplayGroup
from benchmarks.report import page
from benchmarks.rest import Rest
from benchmarks.result import Result, committed
from benchmarks.servers import Servers, running_servers
from benchmarks.sizes import FULL, QUICK, Sizes

_ROOT = Path(__file__).parent.parent
_GROUPS = ("copy", "produce", "backlog", "live", "memory", "destinations")
_FURTHER_GROUPS = ("replay",)
"""Only where they are named: the page does not show them."""
_QUICK_GROUPS = ("copy", "backlog")
_PASSES = (("copy", "produce", "backlog", "live", "memory"), ("destinations",), ("replay",))
"""What is interleaved. The engines of destinations live in this process and tidy up between the batches."""
_HUGE = 10_000_000


def main() -> int:
    arguments = _parser().parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    if arguments.report is not None:
        page(Result.load(arguments.report), _ROOT / "docs")
        return 0
    sizes = (QUICK if arguments.quick else FULL).scaled(arguments.scale)
    sizes = replace(
        sizes,
        rounds=arguments.rounds or sizes.rounds,
        destinations=tuple(arguments.destination or sizes.destinations),
        huge_transaction_rows=int(_HUGE * arguments.scale) if arguments.huge else 0,
    )
    groups = arguments.only or (_QUICK_GROUPS if arguments.quick else _GROUPS)
    started = Result(
        commit=commit(), started=time.time(), machine=machine().to_json(), versions=versions(), scale=arguments.scale
    )
    began = time.monotonic()
    cases = _run(sizes, groups)
    print(f"\n{len(cases)} cases in {(time.monotonic() - began) / 60:.1f} minutes")
    for name, values in ratios(cases).items():
        print(f"  {name:64} {'  '.join(f'{value:.3f}' for value in values)}")
    result = replace(started, cases=cases, seconds=time.monotonic() - began)
    if arguments.out is not None:
        _store(result, arguments.out, quick=arguments.quick)
    return _check(result, arguments.check) if arguments.check is not None else 0


def _run(sizes: Sizes, names: tuple[str, ...] | list[str]) -> dict[str, list[Measurement]]:
    cases: dict[str, list[Measurement]] = {}
    with running_servers() as servers:
        for together in _PASSES:
            _run_pass([_group(name, servers, sizes) for name in names if name in together], sizes, cases)
    return cases


def _run_pass(groups: list[Group], sizes: Sizes, cases: dict[str, list[Measurement]]) -> None:
    rest = Rest(sizes.rest)
    with ExitStack() as stack:
        for group in groups:
            stack.callback(group.close)
            began = time.monotonic()
            group.prepare()
            print(f"{group.name} prepared, {time.monotonic() - began:.1f} s", flush=True)
        for turn in range(sizes.rounds):
            for group in groups:
                for step in group.steps():
                    if group.name in _QUICK_GROUPS and (rested := rest.take()):  # those whose ratios have targets
                        print(f"round {turn + 1}  rested for {rested:.0f} s", flush=True)
                    began = time.monotonic()
                    found = step.run(turn)
                    for name, measurement in found.items():
                        cases.setdefault(name, []).append(measurement)
                    line = f"round {turn + 1}  {step.name:32} {time.monotonic() - began:6.1f} s  {_brief(found)}"
                    print(line.rstrip(), flush=True)


def _group(name: str, servers: Servers, sizes: Sizes) -> Group:
    known: dict[str, Callable[[Servers, Sizes], Group]] = {
        "copy": CopyGroup,
        "produce": ProduceGroup,
        "backlog": BacklogGroup,
        "live": LiveGroup,
        "memory": MemoryGroup,
        "destinations": DestinationGroup,
        "replay": ReplayGroup,
    }
    return known[name](servers, sizes)


def _brief(found: object) -> str:
    if not isinstance(found, dict):
        return ""
    parts = []
    for name, each in found.items():
        if "p50" in each.figures:
            parts.append(f"p50 {each.figures['p50']:.2f} s, p99 {each.figures['p99']:.2f} s")
        elif "interval" in each.figures:
            parts.append(f"tiny interval {each.figures['interval']:.2f} s")
        elif name.startswith("memory/"):
            parts.append(f"{name.partition('/')[2]} {each.memory['capture'] / 1e6:.0f} MB")
        else:
            cpu = f" ({each.cpu[PROCESS]:.2f} s CPU)" if PROCESS in each.cpu else ""
            parts.append(f"{name.rpartition('/')[2]} {each.rate / 1e3:.1f}k/s{cpu}")
    return ", ".join(parts)


def _store(result: Result, path: Path, *, quick: bool) -> None:
    """A quick run becomes a section of the full run's file, if there is one; a full run renders the page."""
    if quick and path.exists():
        Result.load(path).with_quick(result).save(path)
    elif quick:
        result.with_quick(result).save(path)
    else:
        result.save(path)
    print(f"written: {path}")


def _check(result: Result, path: Path) -> int:
    before = committed(path)
    if before is None:
        print(f"No quick section in {path}: nothing to compare with. Run `make bench` and commit its result.")
        return 0
    comparisons = compare(before.quick, best(ratios(result.cases)))
    print(comparison_table(comparisons))
    return 1 if any(each.worse for each in comparisons) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few ratios in less than five minutes")
    parser.add_argument(
        "--only",
        action="append",
        choices=(*_GROUPS, *_FURTHER_GROUPS),
        help="only this group of cases; may be repeated",
    )
    parser.add_argument(
        "--destination", action="append", choices=DESTINATIONS, help="of the destinations only this; may be repeated"
    )
    parser.add_argument("--rounds", type=int, help="how often each case runs")
    parser.add_argument("--scale", type=float, default=1.0, help="sizes times this; for trying things out")
    parser.add_argument("--huge", action="store_true", help="also one transaction of ten million rows")
    parser.add_argument("--out", type=Path, help="where the result goes, as JSON")
    parser.add_argument("--check", type=Path, help="exit 1 if a ratio is more than 20 %% below this file or folder")
    parser.add_argument(
        "--report", type=Path, help="run nothing; write docs/benchmarks.md and its plots from this file"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
