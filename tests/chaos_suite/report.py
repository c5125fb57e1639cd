"""The results of runs as a section of docs/chaos.md, one line each; the rest of the page is left as it is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.chaos_suite.result import Result

_BEGIN, _END = "<!-- chaos results: begin -->", "<!-- chaos results: end -->"
_HEAD = "| seed | commit | rounds | minutes | faults | rows | looks | seconds to catch up, most | failures |"
_LINE = "|---|---|---|---|---|---|---|---|---|"


def write_page(page: Path, results: list[Result]) -> None:
    before, _, rest = page.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    page.write_text(f"{before}{_BEGIN}\n\n{_told(results)}\n\n{_END}{after}")


def _told(results: list[Result]) -> str:
    faults = Counter(fault for result in results for each in result.rounds for fault in each.faults)
    minutes = sum(result.seconds for result in results) / 60
    runs = [f"{minutes:.0f} minutes and {faults.total()} faults in all.", "", _HEAD, _LINE, *map(_line, results)]
    kinds = ["| fault | times |", "|---|---|", *(f"| {name} | {faults[name]} |" for name in sorted(faults))]
    return "\n".join([*runs, "", *kinds])


def _line(result: Result) -> str:
    done = result.rounds
    cells = (
        result.seed,
        result.commit,
        len(done),
        f"{result.seconds / 60:.1f}",
        sum(len(each.faults) for each in done),
        f"{sum(each.rows for each in done):,}",
        f"{sum(each.looks for each in done):,}",
        f"{max((each.catch_up_seconds for each in done), default=0.0):.0f}",
        "<br>".join(result.failures_told) or "none",
    )
    return f"| {' | '.join(map(str, cells))} |"
