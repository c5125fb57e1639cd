"""The clock that the chaos suite makes wrong: it tells what it should, and whoever waits waits as with a real one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.chaos_suite import clocks
from tests.chaos_suite.clocks import Clock, Library, made_library

HOUR = 3600.0
PROGRAM = Path(__file__).parent.parent / "support" / "clock_program.py"
FORWARD_ONLY = ("sleep", "event", "condition", "queue", "monotonic condition")
WALL = ("cnd_timedwait", "pthread_cond_timedwait", "sem_timedwait")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    made = made_library(tmp_path_factory.mktemp("clock"))
    if made.why_not is not None:
        pytest.skip(made.why_not)
    return made


@pytest.fixture
def clock(library: Library, tmp_path: Path) -> Clock:
    return Clock(library, tmp_path / "clock")


def asked(clock: Clock, what: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-I", PROGRAM, what], env=clock.environment, text=True, stdout=subprocess.PIPE
    )


def answered(program: subprocess.Popen[str]) -> dict[str, Any]:
    answer, _ = program.communicate(timeout=20)
    assert program.returncode == 0
    told: dict[str, Any] = json.loads(answer)
    return told


@pytest.mark.parametrize("seconds", [0.0, 5 * HOUR, -2.5])
def test_every_wall_clock_is_moved_and_no_other(clock: Clock, seconds: float) -> None:
    clock.jump(seconds)
    before, since_start = time.time(), time.monotonic()

    told = answered(asked(clock, "tell"))

    assert {name: moved for name, at in told["wall"].items() if abs((moved := at - before) - seconds) > 1.5} == {}
    assert 0 <= told["monotonic"] - since_start < 1.5


@pytest.mark.parametrize(("wrong", "jump", "wall_seconds"), [(-HOUR, 0.0, 0.6), (0.0, HOUR, 0.2), (HOUR, -0.5, 1.1)])
def test_a_jump_ends_or_prolongs_waits_for_a_time_of_day_and_no_others(
    clock: Clock, wrong: float, jump: float, wall_seconds: float
) -> None:
    clock.jump(wrong)
    with asked(clock, "wait") as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "waiting\n"
        time.sleep(0.2)
        clock.jump(jump)
        took = answered(program)

    assert took == pytest.approx(dict.fromkeys(FORWARD_ONLY, 0.6) | dict.fromkeys(WALL, wall_seconds), abs=0.15)


def test_without_a_compiler_there_is_a_reason_and_nothing_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")

    clock = Clock(made_library(tmp_path), tmp_path / "clock")

    assert clock.why_not == "there is no compiler: no-such-compiler is not found"
    assert clock.environment == {}


def test_what_cannot_be_compiled_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "clock.c"
    broken.write_text("int nonsense(")
    monkeypatch.setattr(clocks, "_SOURCE", broken)

    made = made_library(tmp_path)

    assert made.why_not is not None
    assert "clock.c cannot be compiled" in made.why_not
