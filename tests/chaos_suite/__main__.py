"""`python -m tests.chaos_suite --minutes 3`: a run, its table on stdout. Exit code 1: something was not as promised."""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path

from tests.chaos_suite.report import write_page
from tests.chaos_suite.result import Result
from tests.chaos_suite.run import run_chaos

_PAGE = Path("docs/chaos.md")


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m tests.chaos_suite")
    arguments.add_argument("--minutes", type=float, default=3.0, help="no round begins after that")
    arguments.add_argument("--seed", type=int, default=None, help="as a run before printed it")
    arguments.add_argument("--only", nargs="*", default=[], help="words of the names of faults")
    arguments.add_argument("--out", type=Path, default=None, help="where the result goes, as JSON")
    arguments.add_argument("--report", type=Path, nargs="+", help="write docs/chaos.md from results instead of running")
    chosen = arguments.parse_args()
    if chosen.report:
        write_page(_PAGE, [Result.read(path) for path in chosen.report])
        return 0
    seed = secrets.randbits(32) if chosen.seed is None else chosen.seed
    print(f"SEED={seed}", flush=True)  # noqa: T201 -- for who wants it again
    result = run_chaos(seed, chosen.minutes, tuple(chosen.only))
    if chosen.out is not None:
        result.write(chosen.out)
    print(result.table())  # noqa: T201 -- the answer
    return 1 if result.failed else 0


if __name__ == "__main__":
    sys.exit(main())
