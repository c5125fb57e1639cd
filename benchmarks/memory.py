"""Capture's largest resident set: after an ordinary start, one huge transaction, huge values. Once in a run."""

from __future__ import annotations

import time
from collections.abc import Mapping

from benchmarks import workloads
from benchmarks.group import Step
from benchmarks.measurement import Measurement
from benchmarks.pipeline import Pipeline
from benchmarks.processes import peak_bytes
from benchmarks.servers import Servers
from benchmarks.sizes import Sizes

_DATABASE = "bench_memory"
_ORDINARY = 10_000


class MemoryGroup:
    """One capture through all of it: the mark never goes down, so what each part adds is what it needed more."""

    name = "memory"

    def __init__(self, servers: Servers, sizes: Sizes) -> None:
        self._servers = servers
        self._sizes = sizes

    def prepare(self) -> None:
        """Nothing: the only round prepares it."""

    def steps(self) -> list[Step]:
        return [Step("memory of capture", self._run)]

    def close(self) -> None:
        """Nothing is left open."""

    def _run(self, turn: int) -> Mapping[str, Measurement]:
        if turn > 0:
            return {}
        sizes = self._sizes
        found: dict[str, Measurement] = {}
        with self._servers.create_database(_DATABASE) as session, Pipeline(self._servers, "memory", _DATABASE) as pipe:
            workloads.make(session, "orders", "documents")
            session.execute("create publication bench for all tables")
            pipe.start("capture")
            pipe.wait_until_copied([workloads.ORDERS, workloads.DOCUMENTS])
            first = 1

            def orders(case: str, count: int) -> None:
                nonlocal first
                log, start = pipe.next_checkpoint(), time.time()
                workloads.insert_orders(session, first, count, count)
                first += count
                note(case, count, log, start)

            def note(case: str, count: int, log: int, start: float) -> None:
                pipe.wait_until_captured(count, log)
                peak = {"capture": peak_bytes(pipe.pid("capture"))}
                found[f"memory/{case}"] = Measurement(count, time.time() - start, memory=peak)

            orders("ordinary", _ORDINARY)
            orders("one_transaction", sizes.one_transaction_rows)
            log, start = pipe.next_checkpoint(), time.time()
            workloads.insert_documents(session, sizes.large_values)
            note("large_values", sizes.large_values, log, start)
            if sizes.huge_transaction_rows:
                orders("huge_transaction", sizes.huge_transaction_rows)
        return found
