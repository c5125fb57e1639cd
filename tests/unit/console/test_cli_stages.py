from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from console.errors import StageFailed
from console.stages import Stage, Stages

STAGE = """
import sys
from console.stages import ReportedToParent, running_as_stage
from console.logs import LogFormat, set_up_logs
from schemas.errors import SourceError
set_up_logs(LogFormat.JSON)
try:
    with running_as_stage({pipe}{option}) as stop:
        print("ready", flush=True)
        {body}
except ReportedToParent:
    sys.exit(1)
"""


@contextmanager
def a_stage(body: str, parent: socket.socket | None = None, option: str = "") -> Iterator[subprocess.Popen[str]]:
    script = STAGE.format(pipe=parent.fileno() if parent is not None else None, body=body, option=option)
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[parent.fileno()] if parent is not None else [],
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_for_a_clean_stop(number: signal.Signals) -> None:
    with a_stage('stop.wait(); print("drained")') as process:
        process.send_signal(number)

        out, _ = process.communicate(timeout=30)

    assert out == "drained\n"
    assert process.returncode == 0


def test_a_stage_that_seems_to_hang_tells_what_its_threads_do_and_goes_on() -> None:
    # In short waits: a signal that comes while it tells is seen by Python after the wait that it interrupted.
    with a_stage('any(iter(lambda: stop.wait(0.1), True)); print("drained")') as process:
        process.send_signal(signal.SIGUSR1)
        assert process.stderr is not None
        told = iter(process.stderr.readline, "")
        assert any("(most recent call first)" in line for line in told)
        process.send_signal(signal.SIGTERM)

        out, _ = process.communicate(timeout=30)

    assert out == "drained\n"


def test_a_second_signal_ends_at_once() -> None:
    # In short naps: a signal that comes just before a sleep is seen by Python after it.
    naps = "import time; [time.sleep(0.1) for _ in range(600)]"
    with a_stage(f'stop.wait(); print("draining", flush=True); {naps}') as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.readline() == "draining\n"
        process.send_signal(signal.SIGTERM)

        assert process.wait(timeout=30) == -signal.SIGTERM


@pytest.mark.parametrize(("option", "code"), [("", 0), (", cut_short=1", 1)])
def test_a_stage_that_does_not_drain_in_time_ends_all_the_same(option: str, code: int) -> None:
    body = 'import time, console.stages as s; s.DRAIN_SECONDS = 0.2; print("set", flush=True); time.sleep(60)'
    with a_stage(body, option=option) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "set\n"
        process.send_signal(signal.SIGTERM)

        _, err = process.communicate(timeout=30)

    assert process.returncode == code
    assert "stage did not drain in time" in err


def test_a_stage_stops_when_its_parent_is_gone() -> None:
    mine, theirs = socket.socketpair()
    with mine, theirs, a_stage('stop.wait(); print("drained")', theirs) as process:
        theirs.close()
        mine.close()

        out, _ = process.communicate(timeout=30)

    assert out == "drained\n"
    assert process.returncode == 0


def test_a_stage_tells_its_parent_why_it_failed_and_prints_nothing() -> None:
    mine, theirs = socket.socketpair()
    with mine, theirs, a_stage('raise SourceError("no slot", solution="make one")', theirs) as process:
        theirs.close()
        _, err = process.communicate(timeout=30)
        told = json.loads(mine.recv(65536))

    assert told == {"reason": "no slot", "solution": "make one"}
    assert process.returncode == 1
    assert err == ""


def test_a_failed_stage_ends_the_others_with_its_reason_solution_and_exit_code(tmp_path: Path) -> None:
    with Stages({"PATH": "/bin"}) as stages:
        stages.start("capture", ["capture", "--config", str(tmp_path / "nothing.toml")])
        with pytest.raises(StageFailed) as caught:
            stages.watch(threading.Event())

    assert caught.value.exit_code == 1
    assert caught.value.reason == f"capture: There is no configuration file {tmp_path / 'nothing.toml'}."
    assert "Write it" in caught.value.solution


def test_a_stage_that_was_killed_is_told_by_its_signal(tmp_path: Path) -> None:
    stage = Stage("capture", ["capture", "--config", str(tmp_path / "nothing.toml")], {"PATH": "/bin"}, None)
    stage.process.kill()
    stage.process.wait()

    failure = stage.failure()
    stage.close()

    assert failure.reason == "capture was ended by SIGKILL."
    assert failure.exit_code == 137
