"""A pipeline that runs: end to end, and how long a commit takes to be visible in DuckDB.

A commit is visible when the destination's feedback covers its LSN: apply takes that time after DuckDB has committed and
closed the file. A probe beside it opens the file read-only once a second, as a user would, and the case fails if
it ever sees less than the feedback had claimed before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import psycopg

from benchmarks import workloads
from benchmarks.group import Step
from benchmarks.limits import measured
from benchmarks.measurement import Measurement
from benchmarks.pipeline import Pipeline
from benchmarks.ratios import percentile
from benchmarks.servers import Servers
from benchmarks.sizes import Sizes
from benchmarks.timeline import captured, first_at
from schemas.feedback import Feedback
from schemas.lsn import Lsn

_TRANSACTIONS_PER_SECOND = 100
_WARM_UP = 20
_PROBE_SECONDS = 1.0
_READ_SECONDS = 60.0


@dataclass(frozen=True)
class Commit:
    """When it returned, what the WAL position was then, and the largest id that it wrote."""

    at: float
    lsn: Lsn
    last_id: int


@dataclass
class Probe:
    """(moment, largest id) as a reader of the file saw it."""

    seen: list[tuple[float, int]] = field(default_factory=list)

    def contradictions(self, commits: Sequence[Commit], told: Sequence[Feedback]) -> int:
        """How often the file held less than feedback from before the look claims."""
        wrong = 0
        for moment, largest in self.seen:
            claimed = max((each.lsn for each in told if each.applied_at / 1e6 < moment), default=Lsn(0))
            promised = max((each.last_id for each in commits if each.lsn <= claimed), default=0)
            wrong += largest < promised
        return wrong


class LiveGroup:
    """In each round a pipeline of its own, over TCP, both stages warm and nothing behind."""

    name = "live"

    def __init__(self, servers: Servers, sizes: Sizes) -> None:
        self._servers = servers
        self._sizes = sizes
        self._pipeline: Pipeline | None = None
        self._session: psycopg.Connection | None = None
        self._next_id = 1

    def prepare(self) -> None:
        """Each round prepares its own."""

    def steps(self) -> list[Step]:
        return [
            Step("end to end", self._end_to_end),
            *(Step(f"latency at {rate:,}/s", partial(self._latency, rate)) for rate in self._sizes.latency_rates),
            Step("live pipeline ends", lambda _: self._finish()),
        ]

    def close(self) -> None:
        self._finish()

    def _finish(self) -> Mapping[str, Measurement]:
        if self._pipeline is not None and self._session is not None:
            pipeline, self._pipeline = self._pipeline, None
            self._session.close()
            pipeline.__exit__()
        return {}

    def _end_to_end(self, turn: int) -> Mapping[str, Measurement]:
        """From the first row's insert to the progress that covers the last; writing is part of it."""
        database = f"bench_live{turn}"
        self._session = session = self._servers.create_database(database)
        workloads.make(session, "orders")
        session.execute("create publication bench for table orders")
        self._pipeline = pipeline = Pipeline(self._servers, f"live{turn}", database)
        pipeline.start("capture")
        pipeline.start("apply")
        pipeline.wait_until_ready([workloads.ORDERS])
        self._next_id = 1
        log = pipeline.next_checkpoint()
        for _ in range(_WARM_UP):
            workloads.insert_orders(session, self._take_ids(100), 100, 100)
            time.sleep(0.2)
        pipeline.wait_until_applied(pipeline.wait_until_captured(_WARM_UP * 100, log)[-1].lsn)

        rows, log, feedback = self._sizes.end_to_end_rows, pipeline.next_checkpoint(), pipeline.next_feedback()
        start = time.time()
        workloads.insert_orders(session, self._take_ids(rows), rows, self._sizes.rows_per_transaction)
        written = time.time()
        checkpoints = pipeline.wait_until_captured(rows, log)
        last = max(each.lsn for each in checkpoints if each.moved)
        pipeline.wait_until_applied(last)
        end = first_at(pipeline.feedbacks(feedback), last)
        on_kafka = captured(start, checkpoints).when(rows)
        self._expect_rows(pipeline, self._next_id - 1)
        return {
            "end_to_end": measured(
                self._servers, start, end or time.time(), rows, written=written - start, on_kafka=on_kafka - start
            )
        }

    def _expect_rows(self, pipeline: Pipeline, rows: int) -> None:
        count = "select count(*) from public.orders"
        row = pipeline.wait(lambda: pipeline.lake(count), "a DuckDB file that can be read", _READ_SECONDS)
        if row[0] != rows:
            raise RuntimeError(f"DuckDB has {row[0]:,} orders where {rows:,} were written")

    def _latency(self, rate: int, _turn: int) -> Mapping[str, Measurement]:
        pipeline = self._pipeline
        if pipeline is None:
            raise RuntimeError("the live pipeline does not run")
        feedback, start = pipeline.next_feedback(), time.time()
        with _probing(pipeline) as probe:
            commits = self._write_at(rate)
            pipeline.wait_until_applied(commits[-1].lsn)
        told = pipeline.feedbacks(feedback)
        waits = [(first_at(told, each.lsn) or time.time()) - each.at for each in commits]
        if wrong := probe.contradictions(commits, told):
            raise RuntimeError(f"{wrong} looks into the DuckDB file saw less than feedback had claimed")
        if not probe.seen:
            raise RuntimeError("the DuckDB file could not be read once beside apply")
        span = commits[-1].at - commits[0].at
        achieved = (len(commits) - 1) * (rate / _per_second(rate)) / span
        return {
            f"latency/{rate}": measured(
                self._servers,
                start,
                commits[-1].at,
                len(commits) * rate // _per_second(rate),
                p50=percentile(waits, 0.50),
                p95=percentile(waits, 0.95),
                p99=percentile(waits, 0.99),
                worst=max(waits),
                achieved=achieved,
                looks=float(len(probe.seen)),
            )
        }

    def _write_at(self, rate: int) -> list[Commit]:
        """At most a hundred transactions a second, each of as many rows as the rate needs."""
        session = self._session
        if session is None:
            raise RuntimeError("the live pipeline does not run")
        every, rows = 1 / _per_second(rate), rate // _per_second(rate)
        commits = []
        start = time.monotonic()
        for turn in range(int(self._sizes.latency_seconds * _per_second(rate))):
            time.sleep(max(0.0, start + turn * every - time.monotonic()))
            first = self._take_ids(rows)
            session.execute(
                "insert into orders select o.* from generate_series(%s::bigint, %s::bigint) i, an_order(i, %s) o",
                [first, first + rows - 1, workloads.SEED],
            )
            at = time.time()
            row = session.execute("select pg_current_wal_insert_lsn()::text").fetchone()
            commits.append(Commit(at, Lsn.parse(row[0] if row else "0/0"), first + rows - 1))
        return commits

    def _take_ids(self, count: int) -> int:
        first = self._next_id
        self._next_id += count
        return first


def _per_second(rate: int) -> int:
    return min(rate, _TRANSACTIONS_PER_SECOND)


@contextmanager
def _probing(pipeline: Pipeline) -> Iterator[Probe]:
    probe, stop = Probe(), threading.Event()

    def look() -> None:
        while not stop.wait(_PROBE_SECONDS):
            moment = time.time()
            row = pipeline.lake("select max(id) from public.orders")
            if row is not None and row[0] is not None:
                probe.seen.append((moment, int(row[0])))

    thread = threading.Thread(target=look, name="probe")
    thread.start()
    try:
        yield probe
    finally:
        stop.set()
        thread.join()
