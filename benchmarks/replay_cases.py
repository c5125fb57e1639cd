"""A copy and changes on the topics, Postgres stopped, and a new DuckDB filled from them by `penstock replay`.

What is counted are copied rows and changes, from the start of the process to its end: the start of the JVM is in it.
Afterwards Postgres is started again, and the file is compared with it by content.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace

import psycopg
from psycopg.rows import dict_row

from benchmarks import workloads
from benchmarks.group import Step
from benchmarks.limits import measured
from benchmarks.measurement import Measurement
from benchmarks.pipeline import Pipeline
from benchmarks.servers import SETTINGS, Servers
from benchmarks.sizes import Sizes
from console.demo.proof import prove
from console.errors import NotEqual
from console.local_stack.postgres import LocalPostgres
from schemas.identifiers import TableName

_DATABASE = "bench_replay"


class ReplayGroup:
    """A server of its own, since it is stopped: as many changes as copied rows, seven updates to three inserts."""

    name = "replay"

    def __init__(self, servers: Servers, sizes: Sizes) -> None:
        self._sizes = sizes
        self._open = ExitStack()
        self._servers = replace(servers, postgres=LocalPostgres(settings=SETTINGS))
        self._changes = 0

    def prepare(self) -> None:
        self._open.enter_context(self._servers.postgres)
        rows, step = self._sizes.copy_rows, self._sizes.rows_per_transaction
        inserts = rows * 3 // 10
        with self._servers.create_database(_DATABASE) as session:
            workloads.make(session, "orders")
            workloads.insert_orders(session, 1, rows, rows)
            session.execute("create publication bench for table orders")
            self._pipeline = self._open.enter_context(Pipeline(self._servers, "replay", _DATABASE))
            self._pipeline.start("capture")
            self._pipeline.wait_until_copied([workloads.ORDERS])
            start = self._pipeline.next_checkpoint()
            workloads.update_orders(session, 1, rows - inserts, step)
            workloads.insert_orders(session, rows + 1, inserts, step)
            self._changes = rows
            self._pipeline.wait_until_captured(rows, start)
            self._pipeline.stop("capture")

    def steps(self) -> list[Step]:
        return [Step("replay into a new DuckDB", self._replay)]

    def close(self) -> None:
        self._open.close()

    def _replay(self, turn: int) -> Mapping[str, Measurement]:
        postgres = self._servers.postgres
        postgres.stop()
        path = self._pipeline.add_duckdb(f"new{turn}")
        began = time.time()
        self._pipeline.run("replay", "--destination", f"new{turn}")
        found = measured(self._servers, began, time.time(), self._sizes.copy_rows + self._changes)
        postgres.start()
        with psycopg.connect(self._servers.dsn(_DATABASE), row_factory=dict_row) as source:
            (proof,) = prove(source, path, [TableName("public", workloads.ORDERS)])
        if not proof.equal:
            raise NotEqual(
                f"{proof.only_at_source} rows are at the source only, {proof.only_at_destination} not there."
            )
        return {"replay/copy_and_changes": found}
