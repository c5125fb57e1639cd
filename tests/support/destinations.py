"""Further destinations of a pipeline: sections of its file, and applies on the session that all tests share."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg.rows import dict_row
from pyspark.sql import SparkSession

from apply_spark.run import run_apply
from console.demo.proof import prove
from console.local_stack.spark import spark_runtime
from console.waiting import Held, wait_until_there
from schemas.errors import PenstockError
from schemas.identifiers import DestinationName, TableName
from schemas.lsn import Lsn
from tests.support.pipeline import Pipeline, read_lake
from tests.support.shared_log import shared_log


def add_section(pipeline: Pipeline, name: str, *lines: str) -> None:
    """While the pipeline runs: nobody reads the file again until it is started."""
    with pipeline.file.open("a") as file:
        file.write("\n".join(["", f"[destinations.{name}]", *lines, ""]))


def add_duckdb(pipeline: Pipeline, name: str, *lines: str) -> Path:
    path = pipeline.folder / f"{name}.duckdb"
    add_section(pipeline, name, 'type = "duckdb"', f'path = "{path}"', *lines)
    return path


class RunningApply:
    """Apply of one destination in a thread of this process. `with` ends it."""

    def __init__(self, pipeline: Pipeline, name: str, spark: SparkSession) -> None:
        self._stop = threading.Event()
        self._config = pipeline.config().apply_config(DestinationName(name), spark_runtime())
        self._spark = spark
        self.error: PenstockError | None = None
        self._thread = threading.Thread(target=self._run, name=f"apply-{name}")

    def _run(self) -> None:
        try:
            run_apply(self._config, self._stop, self._spark)
        except PenstockError as error:
            self.error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def raise_error(self) -> None:
        if self.error is not None:
            raise self.error


def settle(pipeline: Pipeline, name: str, tables: Iterable[str], applied: RunningApply | None = None) -> Lsn:
    """Returns when the destination has everything that is committed now; the LSN that it then has."""
    config = pipeline.config()
    with shared_log(config.kafka) as log:
        feedback = wait_until_there(
            log,
            config.pipeline,
            DestinationName(name),
            pipeline.wal_lsn(),
            120.0,
            held=Held.RAISED,
            tables=[TableName("public", table) for table in tables],
            between=applied.raise_error if applied is not None else lambda: None,
        )
    return feedback.lsn


def assert_same(pipeline: Pipeline, path: Path, tables: Iterable[str]) -> None:
    """A DuckDB file and the source, by content, row by row."""
    dsn = pipeline.config().source.dsn.get_secret_value()
    with psycopg.connect(dsn, row_factory=dict_row) as source:
        proofs = prove(source, path, [TableName("public", table) for table in tables])
    different = [proof for proof in proofs if not proof.equal]
    assert not different, different


def contents(path: Path, table: str) -> list[tuple[Any, ...]]:
    return sorted(read_lake(path, f"select * from public.{table}"), key=repr)
