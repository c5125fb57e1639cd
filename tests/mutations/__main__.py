"""`python -m tests.mutations`: breaks every promise on purpose, one mutation after the other, in a copy of the code.

Each test must pass before and fail with its mutation. Exit code 1: one did not. `--only WORDS` takes some, `--page`
writes the table of docs/mutations.md."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutations.mutation import ROOT, Mutation
from tests.mutations.page import PAGE, rendered
from tests.mutations.promises import MUTATIONS

_COPIED = ("schemas", "stores", "capture", "apply_spark", "console", "destination_contract", "benchmarks", "tests")
_FAILED, _PASSED = 1, 0
_MODEL = "tests/model/test_protocol.py::test_a_deliberate_defect_is_found"
_SECONDS = 600


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    arguments.add_argument("--only", default="", help="words of what is broken, or of the file")
    arguments.add_argument("--page", action="store_true", help=f"run nothing; write the table of {PAGE}")
    chosen = arguments.parse_args()
    if chosen.page:
        (ROOT / PAGE).write_text(rendered((ROOT / PAGE).read_text()))
        return 0
    mutations = [each for each in MUTATIONS if chosen.only in f"{each.what} {each.file}"]
    if not mutations:
        arguments.error(f"no mutation has {chosen.only!r} in what it breaks, or where")
    with tempfile.TemporaryDirectory(prefix="penstock-mutations-") as folder:
        copy = _copied(Path(folder))
        print("without a mutation ...", flush=True)  # noqa: T201 -- for who watches
        code, told = _tested(copy, sorted({each.test for each in mutations}))
        if code != _PASSED:
            print(told)  # noqa: T201
            return 1
        survived = [each for each in mutations if not _is_caught(copy, each)]
        if not chosen.only:
            code, told = _tested(copy, [_MODEL])
            print(f"{'caught' if code == _PASSED else 'SURVIVED'}: the defects of tests/model")  # noqa: T201
    for each in survived:
        print(f"survived: {each.what} ({each.file})", file=sys.stderr)  # noqa: T201
    print(f"{len(mutations) - len(survived)} of {len(mutations)} mutations were caught")  # noqa: T201
    return 1 if survived or code != _PASSED else 0


def _copied(folder: Path) -> Path:
    for name in _COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def _is_caught(copy: Path, mutation: Mutation) -> bool:
    file, began = copy / mutation.file, time.monotonic()
    before = file.read_text()
    assert mutation.places(copy) == 1, mutation
    file.write_text(mutation.mutated(copy))
    try:
        code, told = _tested(copy, [mutation.test])
    finally:
        file.write_text(before)
    word = "caught" if code == _FAILED else "SURVIVED" if code == _PASSED else f"BROKEN ({code})"
    seconds = time.monotonic() - began
    print(f"{word}, {seconds:.0f} s: {mutation.promise}. {mutation.what}", flush=True)  # noqa: T201
    if code not in (_FAILED, _PASSED):
        print(told)  # noqa: T201
    return code == _FAILED


def _tested(copy: Path, tests: Sequence[str]) -> tuple[int, str]:
    """With the code of the copy: it comes first where modules are looked for."""
    command = [sys.executable, "-m", "pytest", "--quiet", "--exitfirst", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    return done.returncode, done.stdout[-3000:] + done.stderr[-1000:]


if __name__ == "__main__":
    sys.exit(main())
