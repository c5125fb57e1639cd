"""Apply goes wrong at each of its failpoints, and at those of each destination, one after the other under load: the
destination then holds exactly the source, and one with transactions never shows half of one.

Apply runs in the process of the test: its death is an exception that nobody catches, after which it is thrown away.
The death of the whole process is in test_kills.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from apply_spark.config import ApplyConfig
from apply_spark.progress import Progress
from console.control import send_command
from console.local_stack.spark import spark_runtime
from destination_contract.place import Place
from schemas.control import Pause, Resume, Resync, Rollback
from schemas.errors import PenstockError
from schemas.failpoints import ARMED, Armed, armed
from schemas.identifiers import TableName
from schemas.lsn import Lsn
from schemas.phases import Errored, Ready
from tests.conftest import MakePipeline
from tests.contract.destination_places import make_place
from tests.support.applying import applying
from tests.support.bank import TABLES, TOTAL, Bank
from tests.support.builders import a_table
from tests.support.failpoints import Crash, crash
from tests.support.pipeline import LAKE, Pipeline
from tests.support.walk import WHOLE, Step, told, walk

AT_EVERY_DESTINATION = ("apply", "feedback")
OWN = {"ducklake": "duckdb", "parquet-s3": "parquet"}
TRANSACTIONAL = ("memory", "duckdb", "ducklake", "postgres")
KEYED = TableName("public", "keyed")
COMMANDED = ("apply.command_obeying", "apply.command_obeyed", "apply.progress_saving", "apply.progress_saved")
COPIED = (
    "apply.copy_begun",
    "apply.copy_written",
    "apply.catch_up_written",
    "clickhouse.copied",
    "clickhouse.exchanging",
)
PASSED_AT_THE_START = ("parquet.adding", "parquet.added")
"""Before anything is written."""
COMPARED_EVERY = 4
_SECONDS = 60.0


@pytest.fixture(scope="module")
def bank(make_shared_pipeline: MakePipeline) -> Iterator[Bank]:
    """One source and one capture for all destinations."""
    pipeline = make_shared_pipeline('[apply]\nretry_first = "100ms"')
    bank = Bank(pipeline, 200)
    pipeline.start_capture()
    with bank.open():
        yield bank


def steps_of(kind: str) -> list[Step]:
    """The places that every destination passes are walked with one of them; the whole walk, with each."""
    shared = AT_EVERY_DESTINATION if WHOLE or kind == "duckdb" else ()
    steps = walk([*shared, OWN.get(kind, kind)])
    return [step._replace(passes=2) if step.place in PASSED_AT_THE_START else step for step in steps]


@pytest.mark.further
@pytest.mark.timeout(1800 if WHOLE else 900)
@pytest.mark.parametrize(
    "kind",
    [
        "memory",
        "duckdb",
        "postgres",
        *(
            pytest.param(kind, marks=pytest.mark.skipif(not WHOLE, reason="a part of the whole walk"))
            for kind in ("ducklake", "parquet", "parquet-s3", "clickhouse", "delta", "iceberg")
        ),
    ],
)
def test_whatever_goes_wrong_at_any_place_of_apply_the_destination_is_the_source(
    bank: Bank, spark: SparkSession, kind: str, request: pytest.FixtureRequest
) -> None:
    walked = Walked(bank, make_place(kind, request), spark, transactional=kind in TRANSACTIONAL)
    walked.compare()

    steps = steps_of(kind)
    for number, step in enumerate(steps, start=1):
        walked.prepare(step)
        walked.go_wrong(step)
        if number % COMPARED_EVERY == 0 or number == len(steps):
            walked.compare()

    told(f"apply to {kind}", steps)


def repeat(due: Callable[[], Progress | None], enough: Callable[[Progress], bool], what: str) -> None:
    """As apply's loop does, without a rest for longer than it takes."""
    until = time.monotonic() + _SECONDS
    while (progress := due()) is None or not enough(progress):
        assert time.monotonic() < until, f"{what} did not happen within {_SECONDS:g} s"
        time.sleep(0.02)


class Walked:
    """One destination of the pipeline."""

    def __init__(self, bank: Bank, place: Place, spark: SparkSession, *, transactional: bool) -> None:
        self._bank = bank
        self._place = place
        self._spark = spark
        self._transactional = transactional

    @property
    def _pipeline(self) -> Pipeline:
        return self._bank.pipeline

    def _config(self) -> ApplyConfig:
        return self._pipeline.config().apply_config(LAKE, spark_runtime())

    def prepare(self, step: Step) -> None:
        """The next apply shall come to the place."""
        if step.place.endswith((".altering", ".altered")):
            self._bank.alter()
        elif step.place in COPIED:
            send_command(self._pipeline.config(), Resync(KEYED))
        elif step.place in COMMANDED:
            send_command(self._pipeline.config(), Pause(KEYED, LAKE))
            send_command(self._pipeline.config(), Resume(KEYED, LAKE))

    def go_wrong(self, step: Step) -> None:
        """Apply comes to the place, and dies there, or ends with a reason, or goes on by itself."""
        happens = Armed(lambda _: crash(), step.passes) if step.kills else armed(*step)
        ARMED[step.place] = happens
        ended: BaseException | None = None
        try:
            with applying(self._config(), self._place.opened(), self._spark) as due:
                repeat(due, lambda _: happens.happened, f"apply at {step.place}")
        except (Crash, PenstockError) as error:
            ended = error
        finally:
            ARMED.clear()
        assert happens.happened, step
        assert isinstance(ended, Crash) == step.kills, step
        self._assert_no_half(step)

    def compare(self) -> None:
        """An apply that nothing happens to brings the destination to where the source is."""
        with self._bank.still():
            target = self._pipeline.wal_lsn()
            with applying(self._config(), self._place.opened(), self._spark) as due:
                repeat(due, lambda progress: self._is_there(progress, target), "all that is committed")
            for table in TABLES:
                rows = self._pipeline.source.execute(f"select * from {table}".encode()).fetchall()
                assert self._rows(table) == sorted(rows, key=repr), table

    def _is_there(self, progress: Progress, target: Lsn) -> bool:
        """A table that was stopped for good is let go, as an operator does."""
        tables = progress.tables.values()
        for table in tables:
            if isinstance(table.phase, Errored) and table.phase.next_try is None:
                send_command(self._pipeline.config(), Rollback(table.table, LAKE))
        ready = [table for table in tables if table.phase == Ready() and not table.paused]
        return progress.lsn >= target and len(ready) == len(TABLES)

    def _assert_no_half(self, step: Step) -> None:
        if self._transactional:
            assert sum(amount for table in ("giro", "savings") for _, amount in self._rows(table)) == TOTAL, step

    def _rows(self, table: str) -> list[tuple[Any, ...]]:
        return sorted(self._place.rows(a_table(name=TableName("public", table))), key=repr)
