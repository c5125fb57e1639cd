"""Copying a table: COPY discarded, copy to Kafka, and the copied rows from Kafka to DuckDB."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from benchmarks import workloads
from benchmarks.apply_cases import apply_copied_rows
from benchmarks.group import Step
from benchmarks.limits import discard_copy, measured
from benchmarks.measurement import Measurement
from benchmarks.pipeline import Pipeline
from benchmarks.servers import Servers
from benchmarks.sizes import Sizes
from schemas.checkpoint import Checkpoint, CopyFinished, CopyStarted
from schemas.identifiers import TableName

_DATABASE = "bench_copy"
_WORKERS = 2
_ORDERS = TableName("public", workloads.ORDERS)


class CopyGroup:
    """One table, read again in every round by a pipeline of its own."""

    name = "copy"

    def __init__(self, servers: Servers, sizes: Sizes) -> None:
        self._servers = servers
        self._sizes = sizes
        self._blocks = 0
        self._open = ExitStack()
        self._pipelines: dict[int, Pipeline] = {}

    def prepare(self) -> None:
        with self._servers.create_database(_DATABASE) as session:
            workloads.make(session, "orders")
            workloads.insert_orders(session, 1, self._sizes.copy_rows, self._sizes.copy_rows)
            session.execute("vacuum (freeze, analyze) orders")
            session.execute("create publication bench for table orders")
            row = session.execute("select relpages from pg_class where oid = 'orders'::regclass").fetchone()
            self._blocks = row[0] if row else 0
        self._warm_up(self._sizes.rounds)

    def _warm_up(self, turn: int) -> None:
        """A copy that nobody measures: a broker that has just started takes twice as much CPU for a record."""
        self._copy(turn)
        with self._pipelines.pop(turn):
            pass

    def steps(self) -> list[Step]:
        return [
            Step("COPY discarded, 1 connection", lambda _: {"limit/copy_1": self._discard(1)}),
            Step(f"COPY discarded, {_WORKERS} connections", lambda _: {"limit/copy_workers": self._discard(_WORKERS)}),
            Step("copy to Kafka", self._copy),
            Step("copied rows to DuckDB", self._apply),
        ]

    def close(self) -> None:
        self._open.close()

    def _discard(self, connections: int) -> Measurement:
        return discard_copy(self._servers, _DATABASE, workloads.ORDERS, self._blocks, connections)

    def _copy(self, turn: int) -> Mapping[str, Measurement]:
        """`markers`: from the checkpoint that announces the copy to the one that says it is whole, workers started in
        between. `flow`: from the first record handed to the producer to the last."""
        settings = f'copy_workers = {_WORKERS}\ncheckpoint_interval = "50ms"'  # markers wait for a checkpoint
        pipeline = self._open.enter_context(Pipeline(self._servers, f"copy{turn}", _DATABASE, capture=settings))
        self._pipelines[turn] = pipeline
        pipeline.start("capture")
        checkpoints = pipeline.wait_until_copied([workloads.ORDERS])
        time.sleep(0.3)  # the last sample of the workers
        start, end, finished = _copy_span(checkpoints)
        first, last = pipeline.record_times(pipeline.topics.copy(_ORDERS, finished.generation))
        found = {
            "copy/markers": measured(self._servers, start, end, finished.rows),
            "copy/flow": measured(self._servers, first, last, finished.rows),
        }
        pipeline.stop("capture")
        return found

    def _apply(self, turn: int) -> Mapping[str, Measurement]:
        with self._pipelines.pop(turn) as pipeline:
            return apply_copied_rows(self._servers, pipeline, _ORDERS, self._sizes.copy_rows)


def _copy_span(checkpoints: Sequence[Checkpoint]) -> tuple[float, float, CopyFinished]:
    marked = [(each.emitted_at / 1e6, marker) for each in checkpoints for marker in each.markers]
    start = next(at for at, marker in marked if isinstance(marker, CopyStarted) and marker.table == _ORDERS)
    return next(
        (start, at, marker) for at, marker in marked if isinstance(marker, CopyFinished) and marker.table == _ORDERS
    )
