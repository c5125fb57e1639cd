"""`python -m benchmarks.soak --minutes 60`: a pipeline under a steady load, and what of it grows.

Exit code 1: something grew by more than its bound, or did not arrive."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from benchmarks import workloads
from benchmarks.machine import commit, machine
from benchmarks.pipeline import Pipeline
from benchmarks.servers import Servers, running_servers
from benchmarks.soak_report import Soak, write_page
from benchmarks.soak_samples import sample
from schemas.lsn import Lsn

_DATABASE = "bench_soak"
_SAMPLE_SECONDS = 10.0
_ROWS, _PER_TRANSACTION = 100, 10
"""Inserted in every second; as many are updated, and as many deleted."""
_KEPT = 50_000
_READ_SECONDS = 60.0
_SETTINGS = {
    "PENSTOCK_KAFKA__RETENTION": "10m",
    "PENSTOCK_ACKNOWLEDGE__POLICY": "destinations",
    "PENSTOCK_APPLY__DRIVER_MEMORY": "1g",
}


class Load:
    """Inserts, updates and deletes at a steady pace, so that the table keeps its size."""

    def __init__(self, session: psycopg.Connection) -> None:
        self._session = session
        self._next_id = 1
        self.changes = 0
        self.failure: psycopg.Error | None = None

    def fill(self) -> None:
        workloads.insert_orders(self._session, 1, _KEPT, _KEPT)
        self._next_id += _KEPT

    def run(self, stop: threading.Event) -> None:
        turn = time.monotonic()
        try:
            while not stop.wait(max(0.0, turn - time.monotonic())):
                self._second()
                turn += 1.0
        except psycopg.Error as error:
            self.failure = error

    def _second(self) -> None:
        first, oldest = self._next_id, self._next_id - _KEPT
        workloads.insert_orders(self._session, first, _ROWS, _PER_TRANSACTION)
        workloads.update_orders(self._session, oldest + _KEPT // 2, _ROWS, _PER_TRANSACTION)
        self._session.execute("delete from orders where id >= %s and id < %s", [oldest, oldest + _ROWS])
        self._next_id += _ROWS
        self.changes += 3 * _ROWS


def soaked(minutes: float) -> Soak:
    with running_servers() as servers, _scratch(servers.folder / "scratch") as scratch:
        session = servers.create_database(_DATABASE)
        workloads.make(session, "orders")
        session.execute("create publication bench for table orders")
        load = Load(session)
        load.fill()
        with session, Pipeline(servers, "soak", _DATABASE) as pipeline:
            pipeline.start("capture")
            pipeline.start("apply")
            pipeline.wait_until_ready([workloads.ORDERS])
            return _watched(servers, pipeline, load, session, scratch, minutes * 60)


def _watched(
    servers: Servers, pipeline: Pipeline, load: Load, session: psycopg.Connection, scratch: Path, length: float
) -> Soak:
    started, began = time.time(), time.monotonic()
    seconds: list[float] = []
    samples: dict[str, list[int]] = {}
    with _running(load):
        while time.monotonic() - began < length:
            due = began + len(seconds) * _SAMPLE_SECONDS
            pipeline.wait(lambda due=due: time.monotonic() >= due, "the time of a sample")  # type: ignore[misc]
            seconds.append(round(time.monotonic() - began, 1))
            for name, value in sample(pipeline, servers.kafka, scratch).items():
                samples.setdefault(name, []).append(value)
            if len(seconds) % 6 == 0:
                print(f"{seconds[-1] / 60:.1f} min: " + _brief(samples), flush=True)
    _expect_all_applied(pipeline, load, session)
    return Soak(commit(), started, machine().to_json(), load.changes, seconds, samples)


def _expect_all_applied(pipeline: Pipeline, load: Load, session: psycopg.Connection) -> None:
    if load.failure is not None:
        raise load.failure
    row = session.execute("select pg_current_wal_insert_lsn()::text, count(*), sum(id), sum(amount)::text from orders")
    lsn, *told = row.fetchone() or ("0/0",)
    pipeline.wait_until_applied(Lsn.parse(lsn))
    query = "select count(*), sum(id)::bigint, sum(amount)::varchar from public.orders"
    found = pipeline.wait(lambda: pipeline.lake(query), "a DuckDB file that can be read", _READ_SECONDS)
    if list(map(str, found)) != list(map(str, told)):
        raise RuntimeError(f"DuckDB has {found}, the source {told}")


@contextmanager
def _running(load: Load) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=load.run, args=[stop], name="load")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """Where the stages put temporary files, and their settings."""
    folder.mkdir()
    before = dict(os.environ)
    os.environ.update(_SETTINGS, TMPDIR=str(folder), SPARK_LOCAL_DIRS=str(folder))
    try:
        yield folder
    finally:
        os.environ.clear()
        os.environ.update(before)


def _brief(samples: dict[str, list[int]]) -> str:
    shown = [name for name in samples if name.endswith(("resident bytes", "file, bytes", "changes, bytes"))]
    return ", ".join(f"{name.partition(',')[0]} {samples[name][-1] / 1e6:.0f} MB" for name in shown)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--out", type=Path, help="where the result goes, as JSON")
    parser.add_argument("--report", type=Path, help="run nothing; write docs/soak.md and its plot from this file")
    chosen = parser.parse_args()
    if chosen.report is not None:
        write_page(Soak.load(chosen.report), Path("docs"))
        return 0
    soak = soaked(chosen.minutes)
    if chosen.out is not None:
        soak.save(chosen.out)
    print(soak.table())
    for name in soak.broken():
        print(f"grew by more than its bound: {name}", file=sys.stderr)
    return 1 if soak.broken() else 0


if __name__ == "__main__":
    sys.exit(main())
