"""A backlog written once while nobody reads: bare readers discard it, capture drains it to Kafka, apply takes it on.

Every drain has a pipeline of its own, prepared before the backlog was written: its slot and its copies of the then
empty tables are there, its capture is stopped. So each starts where all others start, and nothing but the backlog is
left to do. A drain counts from START_REPLICATION, as Postgres received it, to the checkpoint that holds the last
change; the start of the process is not in it. A bare reader counts from the same command to the last message.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from itertools import accumulate, pairwise

import psycopg

from benchmarks import workloads
from benchmarks.apply_cases import apply_changes, tiny_intervals
from benchmarks.group import Step
from benchmarks.limits import discard_stream, measured
from benchmarks.measurement import Measurement
from benchmarks.pipeline import Pipeline
from benchmarks.servers import TRANSPORTS, Servers
from benchmarks.sizes import Sizes
from benchmarks.timeline import captured, rows_of
from schemas.checkpoint import Checkpoint

_DATABASE = "bench_backlog"
_BARE_SLOT = "bench_bare"
_BACKLOG = 3  # the first segments are the backlog that the targets speak of


class BacklogGroup:
    """Segments: inserts and updates in large transactions, one-row transactions, the mix, the wide table."""

    name = "backlog"

    def __init__(self, servers: Servers, sizes: Sizes) -> None:
        self._servers = servers
        self._sizes = sizes
        self._open = ExitStack()
        self._segments: list[tuple[str, int]] = []
        self._pipelines: dict[tuple[str, int], Pipeline] = {}
        self._drained: dict[int, list[Checkpoint]] = {}

    def prepare(self) -> None:
        session = self._open.enter_context(self._servers.create_database(_DATABASE))
        tables = [workloads.ORDERS, *workloads.TINY_TABLES]
        workloads.make(session, "orders", "tiny")
        if self._sizes.mix_transactions:
            workloads.make(session, "mix")
            tables += workloads.MIX_TABLES
        if self._sizes.wide_rows:
            workloads.make(session, "wide")
            tables.append(workloads.WIDE)
        session.execute("create publication bench for all tables")
        for turn in range(self._sizes.rounds):
            for transport in TRANSPORTS:
                self._prepare_pipeline(transport, turn, tables)
        session.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [_BARE_SLOT])
        self._write(session)

    def _prepare_pipeline(self, transport: str, turn: int, tables: list[str]) -> None:
        name = f"drain_{transport}{turn}"
        pipeline = self._open.enter_context(Pipeline(self._servers, name, _DATABASE, transport))
        self._pipelines[transport, turn] = pipeline
        pipeline.start("capture")
        pipeline.wait_until_copied(tables)
        if transport == "unix":  # whose changes are applied afterwards, to tables that are there
            pipeline.start("apply")
            pipeline.wait_until_ready(tables)
            pipeline.stop("apply")
        pipeline.stop("capture")

    def _write(self, session: psycopg.Connection) -> None:
        sizes, step = self._sizes, self._sizes.rows_per_transaction
        workloads.insert_orders(session, 1, sizes.inserts, step)
        workloads.mark(session)
        workloads.update_orders(session, 1, sizes.updates, step)
        workloads.mark(session)
        workloads.insert_orders(session, sizes.inserts + 1, sizes.one_row, 1)
        workloads.mark(session)
        self._segments = [("inserts", sizes.inserts), ("updates", sizes.updates), ("one_row", sizes.one_row)]
        if sizes.mix_transactions:
            self._segments.append(("mix", workloads.run_mix(session, sizes.mix_transactions)))
            workloads.mark(session)
        if sizes.wide_rows:
            workloads.insert_wide(session, sizes.wide_rows, step)
            workloads.mark(session)
            self._segments.append(("wide", sizes.wide_rows))

    def steps(self) -> list[Step]:
        """The readers of a transport run right before its drain: what is divided by each other is near in time."""
        steps: list[Step] = []
        for transport in TRANSPORTS:
            readers = [each for each in self._sizes.readers if each.startswith(f"{transport}/")]
            steps += [Step(f"bare reader, {each}", partial(self._read, each)) for each in readers]
            steps.append(Step(f"drain, {transport}", partial(self._drain, transport)))
        return [*steps, Step("changes to DuckDB", self._apply)]

    def close(self) -> None:
        self._open.close()

    def _read(self, reader: str, _turn: int) -> Mapping[str, Measurement]:
        transport, mode = reader.split("/")
        parts = discard_stream(self._servers, _DATABASE, transport, mode, _BARE_SLOT, self._segments)
        whole = list(parts.values())[:_BACKLOG]
        found = {f"reader/{reader}/{name}": part for name, part in parts.items()}
        found[f"reader/{reader}/backlog"] = Measurement(
            count=sum(each.count for each in whole),
            seconds=sum(each.seconds for each in whole),
            cpu={role: sum(each.cpu.get(role, 0.0) for each in whole) for role in whole[0].cpu},
            memory=whole[-1].memory,
        )
        return found

    def _drain(self, transport: str, turn: int) -> Mapping[str, Measurement]:
        pipeline = self._pipelines[transport, turn]
        edges = [0, *accumulate(count for _, count in self._segments)]
        log = pipeline.next_checkpoint()
        pipeline.start("capture")
        since = pipeline.streaming_since()
        checkpoints = pipeline.wait_until_captured(edges[-1], log)
        timeline = captured(since, checkpoints)

        def part(low: int, high: int) -> Measurement:
            return measured(self._servers, timeline.when(low), timeline.when(high), high - low)

        first = rows_of(next(each for each in checkpoints if each.moved))
        found = {f"drain/{transport}/backlog": part(0, edges[_BACKLOG])}
        if first < edges[_BACKLOG]:
            found[f"drain/{transport}/steady"] = part(first, edges[_BACKLOG])
        for (name, count), (start, end) in zip(self._segments, pairwise(self._cuts(pipeline, since)), strict=True):
            found[f"drain/{transport}/{name}"] = measured(self._servers, start, end, count)
        pipeline.stop("capture")
        if transport == "unix":
            self._drained[turn] = checkpoints
        return found

    def _cuts(self, pipeline: Pipeline, since: float) -> list[float]:
        """When the segments ended: when the last record of each was handed to the producer. A checkpoint may hold the
        end of one segment and all of the next, so checkpoints cannot tell."""
        orders = pipeline.change_topic(workloads.ORDERS)
        counts = [count for _, count in self._segments[:_BACKLOG]]
        cuts = [since, *(pipeline.record_time(orders, rows - 1) for rows in accumulate(counts))]
        for tables in (workloads.MIX_TABLES, (workloads.WIDE,)):
            ends = pipeline.ends(pipeline.change_topic(table) for table in tables)
            last = [pipeline.record_time(topic, end - 1) for topic, end in ends.items() if end]
            cuts += [max(last)] if last else []
        return cuts

    def _apply(self, turn: int) -> Mapping[str, Measurement]:
        pipeline = self._pipelines["unix", turn]
        found = apply_changes(self._servers, pipeline, self._drained.pop(turn), self._segments)
        pipeline.start("capture")
        pipeline.streaming_since()
        statements = {
            "apply/tiny": (workloads.ONE_ROW, 1),
            "apply/tiny/six_tables": (workloads.SIX_TABLES, len(workloads.TINY_TABLES)),
        }
        with psycopg.connect(self._servers.dsn(_DATABASE), autocommit=True) as session:
            for name, (statement, rows) in statements.items():
                found[name] = tiny_intervals(self._servers, pipeline, session, statement, self._sizes.tiny, rows)
        pipeline.stop("apply")
        pipeline.stop("capture")
        return found
