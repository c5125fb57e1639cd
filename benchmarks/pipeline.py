"""A pipeline as its user runs it: `penstock capture` and `penstock apply` as processes, seen through its topics."""

from __future__ import annotations

import os
import time
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self, TypeVar

import duckdb
import psycopg

from benchmarks.processes import APPLY, CAPTURE
from benchmarks.servers import Servers
from benchmarks.timeline import rows_of
from console.local_stack.processes import free_port
from console.pipeline_state import accepted, read_feedback
from console.stages import Stage
from schemas.checkpoint import Checkpoint, CopyFinished
from schemas.connections import KafkaConfig
from schemas.feedback import Feedback
from schemas.identifiers import DestinationName, PipelineName, TableName, slot_name
from schemas.lsn import Lsn
from schemas.phases import Ready, SyncDone
from schemas.topics import Topics
from stores.kafka_log import KafkaLog

_LAKE = DestinationName("lake")
_LOOK_SECONDS = 0.1
_STOP_SECONDS = 60.0
T = TypeVar("T")


class Pipeline:
    """`with` ends its processes and removes its topics and its slot."""

    def __init__(self, servers: Servers, name: str, database: str, transport: str = "tcp", capture: str = "") -> None:
        self.name = PipelineName(name)
        self.topics = Topics(self.name)
        self._servers = servers
        self._database = database
        self.folder = servers.folder / name
        self.folder.mkdir()
        self.lake_path = self.folder / "lake.duckdb"
        self._metrics_port = free_port()
        self._file = self.folder / "penstock.toml"
        dsn = servers.dsn(database, transport).replace('"', '\\"')
        self._file.write_text(f"""
            [pipeline]
            name = "{name}"
            [source]
            dsn = "{dsn}"
            publication = "bench"
            [kafka]
            bootstrap_servers = "{servers.kafka.bootstrap_servers}"
            [acknowledge]
            policy = "kafka"
            [capture]
            {capture}
            [apply]
            metrics_port = {self._metrics_port}
            [destinations.lake]
            type = "duckdb"
            path = "{self.lake_path}"
            """)
        self._log = KafkaLog(KafkaConfig(bootstrap_servers=servers.kafka.bootstrap_servers))
        self._stages: dict[str, Stage] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for verb in list(self._stages):
            self.stop(verb)
        mine = [topic for topic in self._log.topics() if topic.startswith(f"{self.name}.")]
        if mine:
            self._log.delete(mine)
        self._log.close()
        with psycopg.connect(self._servers.dsn("postgres"), autocommit=True) as admin:
            admin.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s",
                [slot_name(self.name)],
            )

    # Its processes.

    def start(self, verb: str) -> None:
        with (self.folder / f"{verb}.log").open("ab") as errors:
            stage = Stage(verb, [verb, "-c", str(self._file)], os.environ, errors)
        self._stages[verb] = stage
        self._servers.meter.watch(stage.process.pid, {"capture": CAPTURE, "apply": APPLY}[verb])

    def stop(self, verb: str) -> None:
        stage = self._stages.pop(verb)
        self._servers.meter.forget(stage.process.pid)
        stage.process.terminate()
        try:
            stage.process.wait(_STOP_SECONDS)
        finally:
            if not stage.ended():
                stage.process.kill()
                stage.process.wait()
            stage.close()
        if verb == "capture":
            self.wait(lambda: self._walsender() is None, "the walsender to end")

    def run(self, verb: str, *options: str) -> None:
        """A verb that ends by itself."""
        with (self.folder / f"{verb}.log").open("ab") as errors:
            stage = Stage(verb, [verb, "-c", str(self._file), *options], os.environ, errors)
        self._servers.meter.watch(stage.process.pid, APPLY)
        code = stage.process.wait()
        self._servers.meter.forget(stage.process.pid)
        failure = stage.failure() if code else None
        stage.close()
        if failure is not None:
            raise failure

    def add_duckdb(self, name: str) -> Path:
        path = self.folder / f"{name}.duckdb"
        with self._file.open("a") as file:
            file.write(f'\n[destinations.{name}]\ntype = "duckdb"\npath = "{path}"\nfilled_by = "replay"\n')
        return path

    def pid(self, verb: str) -> int:
        return self._stages[verb].process.pid

    def wait(self, look: Callable[[], T | None], what: str, seconds: float = 600.0) -> T:
        """The first true thing that `look` returns; raises where a process has ended, or none came in time."""
        until = time.monotonic() + seconds
        while not (seen := look()):
            for stage in self._stages.values():
                if stage.ended():
                    raise stage.failure()
            if time.monotonic() > until:
                raise TimeoutError(f"{self.name}: {what} did not happen within {seconds:g} s")
            time.sleep(_LOOK_SECONDS)
        return seen

    # What can be seen.

    def checkpoints(self, start: int = 0) -> list[Checkpoint]:
        """The accepted checkpoints at or above an offset."""
        topic = self.topics.checkpoints
        if topic not in self._log.topics():
            return []
        end = self._log.ends([topic])[topic][0]
        records = self._log.read(topic, start, end)
        return accepted([Checkpoint.decode(record.value) for record in records if record.value is not None])

    def next_checkpoint(self) -> int:
        """The offset of the checkpoint that comes next."""
        topic = self.topics.checkpoints
        return self._log.ends([topic])[topic][0]

    def next_feedback(self) -> int:
        topic = self.topics.feedback
        return self._log.ends([topic])[topic][0]

    def feedbacks(self, start: int = 0) -> list[Feedback]:
        """What the destination has told, oldest first; compaction comes later than a case lasts."""
        topic = self.topics.feedback
        end = self._log.ends([topic])[topic][0]
        return [Feedback.decode(each.value) for each in self._log.read(topic, start, end) if each.value is not None]

    def last_feedback(self) -> Feedback | None:
        return read_feedback(self._log, self.name, [_LAKE]).get(_LAKE)

    def record_times(self, topic: str) -> tuple[float, float]:
        """When the first and the last record of a topic were handed to the producer."""
        return self.record_time(topic, 0), self.record_time(topic, self.ends([topic])[topic] - 1)

    def record_time(self, topic: str, offset: int) -> float:
        return next(iter(self._log.read(topic, offset, offset + 1))).timestamp / 1e3

    def ends(self, topics: Iterable[str]) -> dict[str, int]:
        """How many records each of these topics holds; those that are not there are left out."""
        present = self._log.topics().intersection(topics)
        return {topic: ends[0] for topic, ends in self._log.ends(present).items()}

    def change_topic(self, table: str) -> str:
        return self.topics.changes(TableName("public", table))

    def wait_until_copied(self, tables: Iterable[str]) -> list[Checkpoint]:
        """Until every table's copy is on Kafka."""
        wanted = {TableName("public", table) for table in tables}

        def all_finished() -> list[Checkpoint]:
            found = self.checkpoints()
            finished = {marker.table for each in found for marker in each.markers if isinstance(marker, CopyFinished)}
            return found if wanted <= finished else []

        return self.wait(all_finished, "the copies on Kafka")

    def wait_until_captured(self, rows: int, start: int) -> list[Checkpoint]:
        """Until the checkpoints from that offset on hold so many rows."""
        return self.wait(
            lambda: found if sum(map(rows_of, found := self.checkpoints(start))) >= rows else [],
            f"{rows:,} changes on Kafka",
        )

    def wait_until_applied(self, lsn: Lsn) -> None:
        self.wait(lambda: (told := self.last_feedback()) is not None and told.lsn >= lsn, "the destination")

    def wait_until_ready(self, tables: Sequence[str]) -> None:
        """Until the destination has every table and takes its changes."""
        wanted = {TableName("public", table) for table in tables}

        def all_ready() -> bool:
            told = self.last_feedback()
            reports = told.tables if told is not None else ()
            return wanted <= {report.table for report in reports if isinstance(report.phase, Ready | SyncDone)}

        self.wait(all_ready, "tables that are Ready")

    def streaming_since(self) -> float:
        """When Postgres received START_REPLICATION, by the clock that all of us share."""
        return self.wait(self._walsender, "the walsender")

    def _walsender(self) -> float | None:
        with psycopg.connect(self._servers.dsn("postgres"), autocommit=True) as admin:
            row = admin.execute(
                "select extract(epoch from query_start)::float8 from pg_stat_activity join pg_replication_slots "
                "on active_pid = pid where slot_name = %s",
                [slot_name(self.name)],
            ).fetchone()
        return row[0] if row else None

    def lake(self, query: str) -> tuple[float | int, ...] | None:
        """The first row of a query, read beside apply; None while the file is held."""
        try:
            with duckdb.connect(str(self.lake_path), read_only=True) as client:
                return client.execute(query).fetchone()
        except (duckdb.IOException, duckdb.ConnectionException):
            return None

    def apply_metric(self, name: str) -> float:
        """The value of a metric without labels that apply serves."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=5) as page:
            lines = page.read().decode().splitlines()
        return next((float(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0.0)
