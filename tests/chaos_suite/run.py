"""Rounds until the time is over: writers and faults, then silence, then the comparison."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random

from console.local_stack.spark import spark_runtime
from tests.chaos_suite.checks import DESTINATIONS, Watchers, caught_up, differences
from tests.chaos_suite.faults import Faults, Impossible
from tests.chaos_suite.place import Place, made_place
from tests.chaos_suite.result import Result, Round
from tests.chaos_suite.supervised import MOST_MEMORY, Supervised, left_behind
from tests.chaos_suite.workload import SCHEMA, Writers
from tests.support.command import penstock
from tests.support.eventually import eventually

FAULTS_IN_A_ROUND = 9
_BETWEEN_SECONDS = 0.2, 2.5
_GONE_SECONDS = 20.0
_QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dspark.sql.codegen.wholeStage=false"


def run_chaos(seed: int, minutes: float, only: tuple[str, ...] = ()) -> Result:
    """`only`: words of the names of faults, if not all of them are meant. No round begins after these minutes."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", _QUICK_JAVA)
    spark_runtime()  # what is fetched once is fetched before the clock runs
    began = time.monotonic()
    result = Result(seed, _commit(), f"{os.cpu_count()} cores, {platform.machine()}")
    with made_place() as place:
        _fill(place)
        stages = _stages(place)
        with ExitStack() as running:
            for stage in stages:
                stage.start()
                running.callback(stage.stop)
            _rounds(result, place, stages, only, until=began + minutes * 60)
        _take_stock(result, stages, place)
        result.seconds = time.monotonic() - began
        if result.failed:
            place.keep()
            _tell(f"logs are kept in {place.folder}")
    return result


def _fill(place: Place) -> None:
    with place.source_session() as source:
        for statement in SCHEMA:
            source.execute(statement.encode())
    told = penstock("setup-source", "-c", str(place.file))  # or new shapes would be noticed at the next change only
    assert told.returncode == 0, told.stderr


def _rounds(result: Result, place: Place, stages: list[Supervised], only: tuple[str, ...], *, until: float) -> None:
    """One at least, none after one that failed: it would find the same."""
    seconds, failures = caught_up(place)
    _tell(f"started in {seconds:.0f} s")
    if failures:
        result.rounds.append(Round(result.seed, ["start"], catch_up_seconds=seconds, failures=failures))
        return
    faults = Faults(place, stages[0], stages[1:])
    while not failures and (not result.rounds or time.monotonic() < until):
        each = Round(result.seed + len(result.rounds))
        result.rounds.append(each)
        _round(each, place, faults, result, only)
        if each.failures:
            for stage in stages:
                stage.tell_stacks()
        failures = each.failures = each.failures + _left_behind(stages)
        found = "; ".join([*failures, *_failures(stages)]) or "and equal"
        _tell(f"round {each.seed}: {each.rows} rows, caught up in {each.catch_up_seconds:.0f} s, {found}")


def _stages(place: Place) -> list[Supervised]:
    """Capture first."""
    file = ["-c", str(place.file)]
    capture = Supervised("capture", ["capture", *file], place.capture_environment(), place.folder)
    applies = [
        Supervised(f"apply-{name}", ["apply", *file, "--destination", name], place.apply_environment(), place.folder)
        for name in DESTINATIONS
    ]
    return [capture, *applies]


def _round(each: Round, place: Place, faults: Faults, result: Result, only: tuple[str, ...]) -> None:
    chance = Random(each.seed)  # noqa: S311 -- chance, not secrecy
    kinds = {name: do for name, do in faults.kinds().items() if not only or any(word in name for word in only)}
    chosen = chance.choices(list(kinds), k=FAULTS_IN_A_ROUND)
    with Watchers(place) as watchers:
        with Writers(place, str(each.seed)) as writers:
            for name in chosen:
                time.sleep(chance.uniform(*_BETWEEN_SECONDS))
                _tell(name)
                try:
                    kinds[name](chance)
                except Impossible as why:
                    result.skipped[name] = str(why)
                except Exception as error:  # noqa: BLE001 -- a fault that fails is a failure of the round
                    each.failures.append(f"{name} could not be done: {type(error).__name__}: {error}")
                else:
                    each.faults.append(name)
            faults.heal()
        each.rows = writers.rows
        each.catch_up_seconds, failures = caught_up(place)
    each.looks = watchers.looks.total()
    each.failures += failures + watchers.halves[:3]
    if not failures:
        each.failures += differences(place)
    faults.set_clocks_right()


def _left_behind(stages: list[Supervised]) -> list[str]:
    """Processes and files, some seconds later."""

    def found() -> list[str]:
        running = [pid for stage in stages if (pid := stage.pid) is not None]
        return left_behind(running) + [file for stage in stages for file in stage.left_files()]

    try:
        eventually(lambda: not found(), seconds=_GONE_SECONDS)
    except AssertionError:
        return [f"left behind: {found()}"]
    return []


def _failures(stages: list[Supervised]) -> list[str]:
    capture = stages[0]
    too_large = [f"capture had {capture.peak_bytes:,} bytes"] if capture.peak_bytes > MOST_MEMORY else []
    return [failure for stage in stages for failure in stage.failures] + too_large


def _take_stock(result: Result, stages: list[Supervised], place: Place) -> None:
    result.failures = _failures(stages) + _left_behind(stages)
    result.restarts = {stage.name: stage.starts - 1 for stage in stages}
    result.reasons = {
        f"{stage.name}: {reason}".replace(str(place.folder), ""): count
        for stage in stages
        for reason, count in stage.reasons.most_common()
    }
    result.capture_peak_mb = stages[0].peak_bytes // 1024**2


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False, cwd=Path(__file__).parent
    )
    return done.stdout.strip() or "unknown"


def _tell(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)  # noqa: T201 -- for who watches
