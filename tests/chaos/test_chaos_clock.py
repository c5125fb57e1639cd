"""The clock that the chaos suite makes wrong: it tells what it should, and whoever waits waits as with a real one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.chaos_suite import clocks
from tests.chaos_suite.clocks import Clock, Library, made_library

HOUR = 3600.0
PROGRAM_SECONDS = 10
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


@contextmanager
def asked(clock: Clock, what: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-I", PROGRAM, what]
    with subprocess.Popen(command, env=clock.environment, text=True, stdout=subprocess.PIPE) as program:
        try:
            yield program
        finally:
            program.kill()  # with a clock that is wrong in another way than it should it may wait for an hour


def answered(program: subprocess.Popen[str]) -> dict[str, Any]:
    answer, _ = program.communicate(timeout=PROGRAM_SECONDS)
    told: dict[str, Any] = json.loads(answer)
    return told


def length(seconds: float) -> str:
    """Of a wait of a second. Whoever is late because of a busy machine is not that late."""
    return "short" if seconds < 0.9 else "right" if seconds < 2.4 else "long"


@pytest.mark.parametrize("seconds", [0.0, 5 * HOUR, -90.5])
def test_every_wall_clock_is_moved_and_no_other(clock: Clock, seconds: float) -> None:
    clock.jump(seconds)
    before, since_start = time.time(), time.monotonic()

    with asked(clock, "tell") as program:
        told = answered(program)

    wrong_by = {name: at - before - seconds for name, at in told["wall"].items()}
    assert {name: seconds for name, seconds in wrong_by.items() if not -1 < seconds < PROGRAM_SECONDS} == {}
    assert 0 <= told["monotonic"] - since_start < PROGRAM_SECONDS


@pytest.mark.parametrize(
    ("wrong", "jump", "expected"), [(-HOUR, 0.0, "right"), (0.0, HOUR, "short"), (HOUR, -1.5, "long")]
)
def test_a_jump_ends_or_prolongs_waits_for_a_time_of_day_and_no_others(
    clock: Clock, wrong: float, jump: float, expected: str
) -> None:
    clock.jump(wrong)
    with asked(clock, "wait") as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "waiting\n"
        time.sleep(0.2)
        clock.jump(jump)
        took = answered(program)

    lengths = {name: length(seconds) for name, seconds in took.items()}
    assert lengths == dict.fromkeys(FORWARD_ONLY, "right") | dict.fromkeys(WALL, expected)


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
