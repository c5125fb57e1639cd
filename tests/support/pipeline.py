"""A whole pipeline for a test: a database and topics of its own, capture as a process, apply as thread or process.

A test of capture alone needs no Spark: see tests/support/captured.py.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import duckdb
import psycopg
from psycopg.rows import dict_row
from pyspark.sql import SparkSession

from apply_spark.run import run_apply
from console.config import Config, load
from console.demo.proof import prove
from console.environment import PREFIX
from console.errors import StageFailed
from console.local_stack.postgres import LocalPostgres
from console.local_stack.spark import spark_runtime
from console.pipeline_state import read_feedback
from console.stages import Stage
from console.waiting import Held, wait_until_there
from schemas.checkpoint import Checkpoint
from schemas.errors import PenstockError
from schemas.feedback import Feedback, TableReport
from schemas.identifiers import DestinationName, PipelineName, TableName
from schemas.lsn import NOWHERE, Lsn
from schemas.topics import Topics
from stores.kafka_errors import TopicMissing
from tests.support.checkpoint_log import CheckpointLog
from tests.support.eventually import eventually
from tests.support.forked_stage import begun
from tests.support.mirror import Mirror, mirror
from tests.support.shared_log import shared_log

LAKE = DestinationName("lake")


class Brokers(Protocol):
    """One, or several."""

    @property
    def bootstrap_servers(self) -> str: ...


class Pipeline:
    """`with` ends whatever a test left running."""

    def __init__(
        self,
        name: str,
        postgres: LocalPostgres,
        kafka: Brokers,
        spark: SparkSession | None,
        folder: Path,
        toml: str = "",
    ) -> None:
        """Without a Spark session there is no `start_apply`."""
        self.name = name
        self._postgres = postgres
        self._spark = spark
        self.folder = folder
        self.lake_path = folder / "lake.duckdb"
        with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
            admin.execute(f'create database "{name}"')
        self.source = self._source()
        self.file = folder / "penstock.toml"
        self.file.write_text(
            f"""
            [pipeline]
            name = "{name}"
            [source]
            dsn = "{postgres.dsn(name)}"
            publication = "{name}"
            [kafka]
            bootstrap_servers = "{kafka.bootstrap_servers}"
            [capture]
            publication_interval = "500ms"
            idle_interval = "500ms"
            checkpoint_interval = "200ms"
            [destinations.lake]
            type = "duckdb"
            path = "{self.lake_path}"
            {toml}
            """
        )
        self._log = CheckpointLog(Topics(PipelineName(name)).checkpoints)
        self.capture: Stage | None = None
        self.apply: Stage | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self.apply_error: PenstockError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for log in self.folder.glob("*.log"):
                print(f"--- {log.name}\n{log.read_text()[-6000:]}")  # noqa: T201 -- shown by pytest when a test fails
        for stage in (self.capture, self.apply):
            if stage is not None:
                stage.process.kill()
                stage.process.wait()
                stage.close()
        if self._thread is not None:
            self.stop_apply()
        self.source.close()
        with psycopg.connect(self._postgres.dsn(), autocommit=True) as admin:
            slot = f"penstock_{self.name}"
            eventually(lambda: not _active(admin, slot), what="the walsender to end")
            admin.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s", [slot]
            )
            admin.execute(f'drop database "{self.name}" with (force)')

    # The source.

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.source.execute(statement)

    def publish(self, *tables: str) -> None:
        listed = f"table {', '.join(tables)}" if tables else "all tables"
        self.source.execute(f'create publication "{self.name}" for {listed}')

    @contextmanager
    def on_server(self, other: LocalPostgres) -> Iterator[None]:
        """The same pipeline, with a source of the same name on another server, until the end of the block."""
        mine, text = self._postgres, self.file.read_text()
        self._postgres = other
        self.file.write_text(text.replace(mine.dsn(self.name), other.dsn(self.name)))
        self.reconnect()
        try:
            yield
        finally:
            self._postgres = mine
            self.file.write_text(text)
            self.reconnect()

    # The stages.

    def config(self) -> Config:
        variables = tuple((name, value) for name, value in os.environ.items() if name.startswith(PREFIX))
        return _loaded(self.file, self.file.read_text(), variables)

    def start_capture(self, **environment: str) -> None:
        self.capture = self._stage("capture", environment)

    def kill_capture(self) -> None:
        assert self.capture is not None
        self.capture.process.kill()
        self.capture.process.wait()

    def stop_capture(self) -> int:
        assert self.capture is not None
        self.capture.process.terminate()
        return self.capture.process.wait(60)

    def start_apply_process(self, destination: str = LAKE, **environment: str) -> None:
        self.apply = self._stage("apply", environment, "--destination", destination)

    def pause(self, stage: Stage) -> None:
        os.kill(stage.process.pid, signal.SIGSTOP)

    def resume(self, stage: Stage) -> None:
        os.kill(stage.process.pid, signal.SIGCONT)

    def start_apply(self) -> None:
        """In this process, on the session that all tests share."""
        spark = self._spark
        assert spark is not None
        config = self.config().apply_config(LAKE, spark_runtime())
        self._stop = threading.Event()
        self.apply_error = None

        def run() -> None:
            try:
                run_apply(config, self._stop, spark)
            except PenstockError as error:
                self.apply_error = error

        self._thread = threading.Thread(target=run, name="apply")
        self._thread.start()

    def stop_apply(self) -> None:
        assert self._thread is not None
        self._stop.set()
        self._thread.join()
        self._thread = None

    def wait_for_end_of_apply(self, seconds: float = 60.0) -> None:
        """Of apply in this process, by itself."""
        assert self._thread is not None
        self._thread.join(seconds)
        assert not self._thread.is_alive()

    def start(self) -> None:
        self.start_capture()
        self.start_apply()

    def _stage(self, verb: str, environment: Mapping[str, str], *options: str) -> Stage:
        number = len(list(self.folder.glob(f"{verb}*.log")))
        with (self.folder / f"{verb}{number}.log").open("wb") as log:
            return begun(verb, [verb, "-c", str(self.file), *options], {**os.environ, **environment}, log)

    # What can be seen.

    def wal_lsn(self) -> Lsn:
        row = self.source.execute("select pg_current_wal_lsn()::text").fetchone()
        assert row is not None
        return Lsn.parse(row[0])

    def confirmed_lsn(self) -> Lsn:
        """How far the slot lets Postgres forget."""
        row = self.source.execute(
            "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = %s", [f"penstock_{self.name}"]
        ).fetchone()
        return Lsn.parse(row[0]) if row and row[0] else NOWHERE  # a slot that is being made has none

    def capture_peak_bytes(self) -> int:
        """The most memory that capture ever held."""
        assert self.capture is not None
        status = Path(f"/proc/{self.capture.process.pid}/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))

    def capture_log(self) -> str:
        """Of its newest process."""
        return max(self.folder.glob("capture*.log"), key=lambda log: log.stat().st_mtime).read_text()

    def checkpoints(self) -> list[Checkpoint]:
        """Those that count."""
        with shared_log(self.config().kafka) as log:
            return self._log.accepted(log)

    def checkpoint_lsn(self) -> Lsn:
        """How far capture has come."""
        found = self.checkpoints()
        return found[-1].lsn if found else NOWHERE

    def forget_checkpoints(self) -> None:
        """Those that were read: somebody took them, or their topic, away."""
        self._log = CheckpointLog(Topics(PipelineName(self.name)).checkpoints)

    def known_phase(self, table: str) -> str | None:
        """The phase of a table, as the destination last told."""
        report = self.report(table)
        return type(report.phase).__name__ if report else None

    def generation(self, table: str) -> Lsn:
        report = self.report(table)
        return report.generation if report else NOWHERE

    def report(self, table: str) -> TableReport | None:
        """What the destination last told of a table."""
        config = self.config()
        with shared_log(config.kafka) as log:
            feedback = read_feedback(log, config.pipeline, [LAKE]).get(LAKE)
        reports = feedback.tables if feedback else ()
        return next((report for report in reports if report.table == TableName("public", table)), None)

    def settle(self, *tables: str, seconds: float = 90.0, held: Held = Held.RAISED) -> Feedback:
        """Returns when the destination has everything that is committed now, in these tables of schema public."""
        with shared_log(self.config().kafka) as log:
            names = [TableName("public", table) for table in tables]
            target = self.wal_lsn()

            def still_runs() -> None:
                if self.apply_error is not None:
                    raise self.apply_error

            return wait_until_there(
                log, self.config().pipeline, LAKE, target, seconds, held=held, tables=names, between=still_runs
            )

    def assert_equal(self, *tables: str, seconds: float = 90.0) -> None:
        """Settles, then compares these tables by content, row by row."""
        self.settle(*tables, seconds=seconds)
        with psycopg.connect(self._postgres.dsn(self.name), row_factory=dict_row) as source:
            proofs = prove(source, self.lake_path, [TableName("public", table) for table in tables])
        different = [proof for proof in proofs if not proof.equal]
        assert not different, different

    def assert_captured(self, table: str = "t", seconds: float = 60.0) -> Mirror:
        """Waits for a checkpoint past all that is committed now: the topics hold the table, whose key is `id`."""
        config, name, target = self.config(), TableName("public", table), self.wal_lsn()

        def found() -> Mirror | None:
            self.check_capture()
            return mirror(config.kafka, config.pipeline, self.checkpoints(), name, target)

        seen = eventually(found, seconds=seconds, what=f"capture of {table}")
        with self.source.cursor(row_factory=dict_row) as cursor:
            rows = cursor.execute(f"select * from {table}").fetchall()
        assert seen.rows == {row["id"]: row for row in rows}
        return seen

    def check_capture(self) -> None:
        """Raises why capture ended, if it has."""
        if self.capture is not None and self.capture.process.poll():
            raise self.capture.failure()

    def refused(self) -> StageFailed:
        """Why capture ended, which it has to within a minute, with exit code 1."""
        assert self.capture is not None
        assert self.capture.process.wait(60) == 1
        return self.capture.failure()

    def reconnect(self) -> None:
        """The source after a restart of its server."""
        self.source.close()
        self.source = self._source()

    def _source(self) -> psycopg.Connection:
        """Nothing is prepared: tables change their columns between two equal queries, which Postgres refuses then."""
        return psycopg.connect(self._postgres.dsn(self.name), autocommit=True, prepare_threshold=None)

    def lake(self, query: str, parameters: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        """What a client reads from the DuckDB file."""
        return read_lake(self.lake_path, query, parameters)

    def has_topic(self, topic: str) -> bool:
        with shared_log(self.config().kafka) as log:
            return topic in log.topics()

    def records(self, topic: str) -> int:
        """How many records a topic holds; 0 where it is not there yet."""
        with shared_log(self.config().kafka) as log:
            try:
                return log.ends([topic])[topic][0]
            except TopicMissing:
                return 0

    def copied_records(self, table: str) -> int:
        """How many records the newest copy topic of a table holds."""
        prefix = f"{self.change_topic(table)}.copy."
        with shared_log(self.config().kafka) as log:
            newest = max((topic for topic in log.topics() if topic.startswith(prefix)), default=None)
            return log.ends([newest])[newest][0] if newest else 0

    def kill_apply(self) -> None:
        assert self.apply is not None
        self.apply.process.kill()
        self.apply.process.wait()

    def wait_for_death_of_apply(self) -> None:
        assert self.apply is not None
        assert self.apply.process.wait(120) == -signal.SIGKILL, self.apply.failure().reason

    def change_topic(self, table: str) -> str:
        return Topics(self.config().pipeline).changes(TableName("public", table))


@functools.lru_cache(maxsize=16)
def _loaded(file: Path, _text: str, _variables: tuple[tuple[str, str], ...]) -> Config:
    """Read again where file or environment say something else: tests ask for it with every look."""
    return load(file)


def _active(admin: psycopg.Connection, slot: str) -> bool:
    row = admin.execute("select active from pg_replication_slots where slot_name = %s", [slot]).fetchone()
    return bool(row and row[0])


def read_lake(path: Path, query: str, parameters: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
    """What a client reads from a DuckDB file, in between batches."""

    def attempt() -> tuple[list[tuple[Any, ...]]] | None:
        try:
            with duckdb.connect(str(path), read_only=True) as client:
                return (client.execute(query, list(parameters)).fetchall(),)
        except (duckdb.IOException, duckdb.ConnectionException):
            return None
        except duckdb.BinderException as error:
            if "file handle conflict" not in str(error):  # apply, in this process, has the file open just now
                raise
            return None

    return eventually(attempt, what=f"{path} to be readable")[0]
