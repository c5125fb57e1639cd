"""The package of examples/, as the author of a destination has it: built, installed, found, and tried by the suite."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from destination_contract.contract import DestinationContract

pytestmark = pytest.mark.further

EXAMPLE = Path(__file__).parents[2] / "examples" / "feather-destination"
_TESTS = ("test_contract.py", "conftest.py")
_FOUND = """
from importlib.metadata import entry_points
(entry,) = entry_points(group="penstock.destinations", name="feather")
print(entry.dist.name, entry.load().__name__)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its tests, beside the installed package. A copy is built, for a build leaves files behind."""
    source, target = tmp_path_factory.mktemp("source") / "package", tmp_path_factory.mktemp("installed")
    shutil.copytree(EXAMPLE, source)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(target), str(source)], check=True, timeout=120)
    tests = tmp_path_factory.mktemp("tests")
    for name in _TESTS:
        shutil.copy(EXAMPLE / name, tests)
    (tests / "installed").symlink_to(target)
    return tests


def test_the_installed_package_is_found_by_its_entry_point(folder: Path) -> None:
    assert _run(folder, "-c", _FOUND).stdout.split() == ["penstock-feather", "FeatherDestination"]


def test_the_installed_package_keeps_the_contract_and_needs_nothing_of_our_tests(folder: Path) -> None:
    done = _run(folder, "-m", "pytest", "--quiet", f"--basetemp={folder / 'tmp'}", "-W", "error", *_IGNORED)

    passed = re.search(r"(\d+) passed(, \d+ \w+)* in", done.stdout)
    assert passed is not None, done.stdout[-4000:]
    assert int(passed[1]) >= sum(name.startswith("test_") for name in dir(DestinationContract))
    assert passed[2] == ", 1 skipped", "an ending, which is for modes that the example does not have"


_IGNORED = ("-W", "ignore:unclosed <socket:ResourceWarning")
"""Pyspark leaves the sockets of collect() to the garbage collector."""


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """From a folder that is not ours, with the package on the path and this repository only as it is installed."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "installed")},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
