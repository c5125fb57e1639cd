"""`write_events` of each destination, and the engine's own bulk merge of the same rows, in turn.

Both tables begin with the same rows, and take the same batches: updates, deletes and inserts by key. Ours begins with
what the fold hands over, as Arrow in the driver, and ends with rows and progress committed; the raw merge begins with
rows in the engine's own types.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from apply_spark.config import ApplyConfig, DestinationConfig
from apply_spark.destination import Batch, Connector, Destination, TableChanges
from apply_spark.destinations.clickhouse import ClickHouseDestination
from apply_spark.destinations.delta import DeltaDestination
from apply_spark.destinations.duckdb import DuckDbDestination
from apply_spark.destinations.ducklake import DuckLakeDestination
from apply_spark.destinations.iceberg import IcebergDestination
from apply_spark.destinations.parquet import ParquetDestination
from apply_spark.destinations.postgres import PostgresDestination
from apply_spark.progress import Progress, TableProgress
from apply_spark.rows import ArrowRows
from apply_spark.session import spark_session
from benchmarks.group import Step
from benchmarks.measurement import Measurement
from benchmarks.order_rows import ORDERS, changed_rows, copied_rows
from benchmarks.processes import PROCESS, cpu_seconds
from benchmarks.raw_merges import (
    RawClickHouse,
    RawDelta,
    RawDuckDb,
    RawDuckLake,
    RawIceberg,
    RawMerge,
    RawParquet,
    RawPostgres,
)
from benchmarks.servers import Servers
from benchmarks.sizes import Sizes
from console.local_stack.spark import spark_runtime
from schemas.connections import KafkaConfig
from schemas.identifiers import DestinationName, Epoch, LogId, PipelineName, SchemaId
from schemas.lsn import Lsn
from schemas.phases import Ready

_NAME = DestinationName("bench")
_PIECE = 200_000
_DATABASE = "bench_destinations"


class _Pair(NamedTuple):
    """A destination, and the engine without it."""

    ours: Destination
    raw: RawMerge


class DestinationGroup:
    """Tables of `mirror_rows` rows, batches of a fifth of that."""

    name = "destinations"

    def __init__(self, servers: Servers, sizes: Sizes) -> None:
        self._servers = servers
        self._rows = sizes.mirror_rows
        self._kinds = sizes.destinations
        self._batch = sizes.mirror_rows // 5
        self._open = ExitStack()
        self._pairs: dict[str, _Pair] = {}
        self._lsn = 0

    def prepare(self) -> None:
        self._spark = _session()
        self._open.callback(self._spark.stop)
        self._servers.create_database(_DATABASE).close()
        made = _pairs(self._spark, self._servers.folder, self._servers.dsn(_DATABASE))
        for kind in self._kinds:
            ours, raw = made[kind]
            ours.startup()
            self._open.callback(ours.shutdown)
            pair = self._pairs[kind] = _Pair(ours, raw())
            self._open.callback(pair.raw.close)
            self._fill(pair)

    def steps(self) -> list[Step]:
        return [Step(f"a batch to {kind}, and raw", partial(self._measured, kind)) for kind in self._pairs]

    def close(self) -> None:
        self._open.close()

    def _fill(self, pair: _Pair) -> None:
        pair.ours.drop_table_for_copy(ORDERS, self._progress())
        for first in range(0, self._rows, _PIECE):
            folded, typed = copied_rows(first, min(_PIECE, self._rows - first))
            pair.ours.write_table_rows(ORDERS, ArrowRows(self._spark, folded), self._progress())
            pair.raw.fill(typed)

    def _measured(self, kind: str, turn: int) -> Mapping[str, Measurement]:
        pair = self._pairs[kind]
        folded, typed = changed_rows(self._rows, self._batch, turn)
        pair.raw.ready(typed)
        changes = TableChanges(ORDERS, truncate=False, rows=ArrowRows(self._spark, folded), partial=False)
        batch = Batch((changes,), self._progress())
        return {
            f"destinations/{kind}/ours": self._timed(lambda: pair.ours.write_events(batch)),
            f"destinations/{kind}/raw": self._timed(pair.raw.merge),
        }

    def _timed(self, written: Callable[[], None]) -> Measurement:
        used, began = cpu_seconds(os.getpid()), time.monotonic()
        written()
        seconds = time.monotonic() - began
        return Measurement(self._batch, seconds, {PROCESS: cpu_seconds(os.getpid()) - used})

    def _progress(self) -> Progress:
        """Always further on."""
        self._lsn += 1
        table = TableProgress(
            table=ORDERS.name,
            phase=Ready(),
            generation=Lsn(1),
            schema_id=SchemaId(1),
            lsn=Lsn(self._lsn),
            epoch=Epoch(1),
            log_offset=self._lsn,
            topic_offset=0,
        )
        fresh = Progress.fresh(LogId("bench"))
        return replace(fresh.with_tables(table), lsn=Lsn(self._lsn), epoch=Epoch(1), log_offset=self._lsn)


def _pairs(spark: SparkSession, folder: Path, dsn: str) -> dict[str, tuple[Destination, Callable[[], RawMerge]]]:
    """By type: the destination, and what makes the engine without it once that is open. Each has its own place, except
    that Spark knows one catalog for both of Iceberg, and a process has one engine of ClickHouse."""
    lake = {"catalog": str(folder / "ours.ducklake"), "data_path": str(folder / "ours_files")}
    iceberg = {"catalog": "hadoop", "warehouse": str(folder / "iceberg")}
    clickhouse = f"chdb://{folder / 'clickhouse'}"
    return {
        "duckdb": (
            DuckDbDestination(_NAME, {"path": folder / "ours.duckdb"}),
            lambda: RawDuckDb(folder / "raw.duckdb"),
        ),
        "ducklake": (DuckLakeDestination(_NAME, lake), lambda: RawDuckLake(folder)),
        "postgres": (PostgresDestination(_NAME, {"dsn": dsn}), lambda: RawPostgres(dsn)),
        "delta": (
            DeltaDestination(_NAME, {"path": str(folder / "ours_delta")}),
            lambda: RawDelta(spark, f"delta.`{folder}/raw_delta`"),
        ),
        "iceberg": (IcebergDestination(_NAME, iceberg), lambda: RawIceberg(spark, f"{_NAME}.raw.orders")),
        "clickhouse": (ClickHouseDestination(_NAME, {"dsn": clickhouse}), lambda: RawClickHouse(clickhouse)),
        "parquet": (
            ParquetDestination(_NAME, {"path": str(folder / "ours_parquet")}),
            lambda: RawParquet(folder / "raw_parquet"),
        ),
    }


def _session() -> SparkSession:
    """As apply makes it, for Delta and for Iceberg."""
    delta, iceberg = DeltaDestination.connector, IcebergDestination.connector
    both = Connector((*delta.jars, *iceberg.jars), {**delta.settings, **iceberg.settings})
    return spark_session(
        ApplyConfig(
            pipeline=PipelineName("bench"),
            name=_NAME,
            destination=DestinationConfig(type="memory"),
            kafka=KafkaConfig(bootstrap_servers="none:1"),
            runtime=spark_runtime(both),
        )
    )
