"""While a large table is copied, the others stay close behind the source."""

from __future__ import annotations

import time
from collections import deque

import pytest

from schemas.feedback import Feedback
from schemas.identifiers import TableName
from schemas.lsn import Lsn
from schemas.phases import Ready
from schemas.topics import Topics
from stores.kafka_tail import Tail
from tests.conftest import MakePipeline
from tests.support.captured import publish
from tests.support.eventually import eventually
from tests.support.meanwhile import meanwhile
from tests.support.pipeline import Pipeline

ROWS = 1_000_000
BOUND_SECONDS = 5.0


class Lag:
    """Commits on their way: how long each takes until the destination says that it has it."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._waiting: deque[tuple[Lsn, float]] = deque()
        self._feedback = Tail(pipeline.config().kafka, Topics(pipeline.config().pipeline).feedback)
        self._ready: frozenset[TableName] = frozenset()
        self.worst = 0.0
        self.seen = 0

    def commit(self, step: int) -> None:
        self._pipeline.sql(f"insert into small values ({step})")
        self._waiting.append((self._pipeline.wal_lsn(), time.monotonic()))

    def look(self) -> None:
        """Takes in what the destination has told since."""
        for record in self._feedback.new():
            if record.value is not None:
                feedback = Feedback.decode(record.value)
                self._ready = frozenset(each.table for each in feedback.tables if isinstance(each.phase, Ready))
                self._has(feedback.lsn)
        if self._waiting:
            self._measure(self._waiting[0][1])

    def _has(self, lsn: Lsn) -> None:
        while self._waiting and self._waiting[0][0] <= lsn:
            self._measure(self._waiting.popleft()[1])
            self.seen += 1

    def _measure(self, since: float) -> None:
        self.worst = max(self.worst, time.monotonic() - since)

    def is_ready(self, table: str) -> bool:
        self.look()
        return TableName("public", table) in self._ready

    def close(self) -> None:
        self._feedback.close()


@pytest.mark.alone
def test_adding_a_table_of_a_million_rows_keeps_the_lag_of_the_others_below_five_seconds(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline()
    pipeline.sql(
        "create table small (id int primary key)",
        "create table large (id int primary key, n int)",
        f"insert into large select i, i % 7 from generate_series(1, {ROWS}) i",
    )
    pipeline.publish("small")
    pipeline.start()
    pipeline.settle("small")
    lag = Lag(pipeline)

    with meanwhile(lag.commit, pause=0.1):
        eventually(lambda: lag.is_ready("small") and lag.seen > 0, what="the first commits")
        lag.worst = 0.0
        began = time.monotonic()
        publish(pipeline, "add table large")
        eventually(lambda: lag.is_ready("large"), seconds=120, what="the large table to be ready")
        took = time.monotonic() - began
    lag.close()

    print(f"{ROWS:,} rows in {took:.1f} s, {lag.seen} commits meanwhile, the slowest {lag.worst:.2f} s")  # noqa: T201
    assert lag.seen > took, "commits went on"
    assert lag.worst < BOUND_SECONDS
    assert pipeline.lake("select count(*), sum(n) from public.large") == [
        (ROWS, sum(i % 7 for i in range(1, ROWS + 1)))
    ]
