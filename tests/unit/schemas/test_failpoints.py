from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from schemas.failpoint_places import PLACES, is_after
from schemas.failpoints import ARMED, VARIABLE, Armed, arm, armed, failpoint

ROOT = Path(__file__).parents[3]
PACKAGES = ("schemas", "stores", "capture", "apply_spark", "console")
LAKES = ("delta", "iceberg")
"""What `{self._tables.kind}` stands for in the name of a place."""


def passed_by_code() -> set[str]:
    """The name in every call of `failpoint`, read from the source."""
    return {
        name
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        if "failpoint(" in (text := file.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "failpoint"
        for name in names_of(node.args[0])
    }


def names_of(argument: ast.expr) -> list[str]:
    match argument:
        case ast.Constant(value=str(name)):
            return [name]
        case ast.JoinedStr(values=[ast.FormattedValue(), ast.Constant(value=str(end))]):
            return [f"{kind}{end}" for kind in LAKES]
        case _:
            raise AssertionError(f"the name of a failpoint is written out, not {ast.unparse(argument)}")


def test_every_place_is_registered_and_every_registered_place_is_passed_by_code() -> None:
    assert passed_by_code() == set(PLACES)


def test_the_docs_have_every_place_with_its_meaning() -> None:
    page = (ROOT / "docs" / "chaos.md").read_text()

    assert dict(re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \| (.+) \|$", page, re.MULTILINE)) == PLACES


def test_a_place_that_is_not_armed_does_nothing() -> None:
    assert not ARMED
    failpoint("apply.committed", OSError)


def test_an_error_is_raised_once_when_the_place_is_passed_for_that_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ARMED, "status.reporting", armed("status.reporting", "error", passes=2))
    failpoint("status.reporting", OSError)
    failpoint("status.reported", OSError)

    with pytest.raises(OSError, match=r"Failpoint status\.reporting\."):
        failpoint("status.reporting", OSError)

    failpoint("status.reporting", OSError)
    assert ARMED["status.reporting"].happened


def test_an_answer_is_lost_at_places_after_an_effect_only_and_an_effect_fails_before_it_only() -> None:
    for name in PLACES:
        wrong, right = ("error", "drop") if is_after(name) else ("drop", "error")
        armed(name, right)
        with pytest.raises(ValueError, match=f"arm it with '{right}', not '{wrong}'"):
            armed(name, wrong)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("apply.comitted=kill", "no failpoint 'apply.comitted'; did you mean 'apply.committed'?"),
        ("nothing like it=kill", "no failpoint 'nothing like it'."),
        ("apply.committed=kil", "apply.committed knows no action 'kil'; did you mean 'kill'?"),
        ("apply.committed", "apply.committed knows no action ''; there are kill, hang, delay:SECONDS, error and drop."),
        ("apply.committed=kill@x", "invalid literal"),
        ("apply.committed=delay:x", "could not convert"),
    ],
)
def test_a_mistake_is_told_with_what_was_meant(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        arm(text)
    arm("")


def test_a_delay_waits_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ARMED, "store.saved", armed("store.saved", "delay:0.05"))
    began = time.monotonic()

    failpoint("store.saved", OSError)

    assert time.monotonic() - began >= 0.05


def test_a_test_may_have_anything_happen(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Exception] = []
    monkeypatch.setitem(ARMED, "store.saved", Armed(given.append))

    failpoint("store.saved", OSError)

    assert [type(error) for error in given] == [OSError]


def passing(name: str, armed_with: str) -> subprocess.Popen[str]:
    """A process that passes the place, armed by its environment."""
    return subprocess.Popen(
        [sys.executable, "-c", f"from schemas.failpoints import failpoint; failpoint({name!r}, OSError); print('on')"],
        env={**os.environ, VARIABLE: armed_with},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_environment_arms_a_process_which_tells_of_its_end() -> None:
    with passing("apply.committed", "store.saved=hang,apply.committed=kill") as process:
        out, told = process.communicate()

    assert process.returncode == -signal.SIGKILL
    assert (out, told) == ("", '{"event": "failpoint", "place": "apply.committed", "action": "kill"}\n')


def test_a_place_that_hangs_goes_no_further() -> None:
    with passing("apply.committed", "apply.committed=hang") as process:
        assert process.stderr is not None
        assert process.stdout is not None
        told = process.stderr.readline()
        process.kill()

        assert (told != "", process.stdout.read()) == (True, "")
