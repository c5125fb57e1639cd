"""The results of runs as a section of docs/chaos.md; the rest of the page is left as it is."""

from __future__ import annotations

from pathlib import Path

from tests.chaos_suite.result import Result

_BEGIN, _END = "<!-- chaos results: begin -->", "<!-- chaos results: end -->"


def write_page(page: Path, results: list[Result]) -> None:
    before, _, rest = page.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    told = "\n\n".join(result.table() for result in results)
    page.write_text(f"{before}{_BEGIN}\n\n{told}\n\n{_END}{after}")
