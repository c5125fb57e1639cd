"""What an engine does by itself with a ready-made batch: one bulk merge, no progress, no checks, no conversion."""

# ruff: noqa: S608 -- statements are put together from constants of this file

from __future__ import annotations

import io
import os
import secrets
from pathlib import Path
from typing import Protocol

import clickhouse_connect
import duckdb
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv
from pyspark.sql import DataFrame, SparkSession

from apply_spark.destinations.ducklake import load_extension
from benchmarks.order_rows import ORDERS

_NAMES = [column.name for column in ORDERS.columns]
_LISTED = ", ".join(_NAMES)
_SET = ", ".join(f"{name} = s.{name}" for name in _NAMES)
_VALUES = ", ".join(f"s.{name}" for name in _NAMES)
_MERGE = f"""
merge into {{target}} t using {{source}} s on t.id = s.id
when matched and s.deleted then delete
when matched then update set {_SET}
when not matched and not s.deleted then insert ({_LISTED}) values ({_VALUES})
"""


_SPARK_TYPES = (
    "id bigint, customer_id int, placed_at timestamp, status string, currency string, amount decimal(12, 2),"
    " items int, express boolean, reference string, note string"
)


class RawMerge(Protocol):
    """A table at an engine. `ready` is called before the clock runs."""

    def fill(self, rows: pa.Table) -> None: ...

    def ready(self, batch: pa.Table) -> None: ...

    def merge(self) -> None: ...

    def close(self) -> None: ...


class RawDuckDb:
    """A file, open all the time."""

    def __init__(self, path: Path) -> None:
        self._db = duckdb.connect(str(path))
        self._target = "orders"

    def fill(self, rows: pa.Table) -> None:
        self._db.register("rows", rows)
        self._db.execute(f"create table if not exists {self._target} as select {_LISTED} from rows limit 0")
        self._db.execute(f"insert into {self._target} select {_LISTED} from rows")
        self._db.unregister("rows")

    def ready(self, batch: pa.Table) -> None:
        self._db.register("batch", batch)

    def merge(self) -> None:
        self._db.execute(_MERGE.format(target=self._target, source="batch"))

    def close(self) -> None:
        self._db.close()


class RawDuckLake(RawDuckDb):
    """Metadata in a file. A MERGE of DuckLake takes one action, so there are two statements."""

    def __init__(self, folder: Path) -> None:
        self._db = duckdb.connect()
        load_extension(self._db, "ducklake")
        self._db.execute(
            f"attach 'ducklake:{folder / 'raw.ducklake'}' as lake"
            f" (data_path '{folder / 'raw_files'}', data_inlining_row_limit 0)"
        )
        self._target = "lake.main.orders"

    def merge(self) -> None:
        self._db.execute("begin")
        self._db.execute(f"delete from {self._target} t using batch s where t.id = s.id")
        self._db.execute(f"insert into {self._target} select {_LISTED} from batch where not deleted")
        self._db.execute("commit")


class RawPostgres:
    """COPY of ready text into a temporary table, then one MERGE, in one transaction."""

    _TYPES = (
        "id bigint, customer_id integer, placed_at timestamptz, status text, currency text, amount numeric(12, 2),"
        " items integer, express boolean, reference uuid, note text"
    )

    def __init__(self, dsn: str) -> None:
        self._db = psycopg.connect(dsn, autocommit=True)
        self._db.execute(f"create table raw_orders ({self._TYPES}, primary key (id))".encode())
        self._text = b""

    def fill(self, rows: pa.Table) -> None:
        self._copy(f"raw_orders ({_LISTED})", _as_csv(rows.select(_NAMES)))

    def ready(self, batch: pa.Table) -> None:
        self._text = _as_csv(batch)

    def merge(self) -> None:
        with self._db.transaction():
            self._db.execute(f"create temporary table batch (deleted boolean, {self._TYPES}) on commit drop".encode())
            self._copy("batch", self._text)
            self._db.execute("analyze batch")
            self._db.execute(_MERGE.format(target="raw_orders", source="batch").encode())

    def close(self) -> None:
        self._db.close()

    def _copy(self, target: str, text: bytes) -> None:
        with self._db.cursor() as cursor, cursor.copy(f"copy {target} from stdin (format csv)".encode()) as copy:
            copy.write(text)


class RawDelta:
    """A table in a folder, with deletion vectors as penstock's mirrors have; the batch is in Spark's memory."""

    _LIKE_A_MIRROR = "using delta tblproperties ('delta.enableDeletionVectors' = 'true')"

    def __init__(self, spark: SparkSession, target: str) -> None:
        self._spark = spark
        self._target = target
        self._batch: DataFrame | None = None
        spark.sql(f"create table {target} ({_SPARK_TYPES}) {self._LIKE_A_MIRROR}")

    def fill(self, rows: pa.Table) -> None:
        self._spark.createDataFrame(rows.select(_NAMES)).writeTo(self._target).append()

    def ready(self, batch: pa.Table) -> None:
        self.close()
        self._batch = self._spark.createDataFrame(batch).persist()
        self._batch.count()
        self._batch.createOrReplaceTempView("raw_batch")

    def merge(self) -> None:
        self._spark.sql(_MERGE.format(target=self._target, source="raw_batch")).collect()

    def close(self) -> None:
        if self._batch is not None:
            self._batch.unpersist()


class RawIceberg(RawDelta):
    """A table of a Hadoop catalog, merged on read as penstock's mirrors are."""

    _LIKE_A_MIRROR = """using iceberg tblproperties (
        'format-version' = '3', 'write.merge.mode' = 'merge-on-read', 'write.delete.mode' = 'merge-on-read')"""


class RawClickHouse:
    """An insert into a ReplacingMergeTree: the engine's own way to merge, done by its readers and in the background."""

    _TYPES = """id Int64, customer_id Nullable(Int32), placed_at Nullable(DateTime64(6, 'UTC')),
        status Nullable(String), currency Nullable(String), amount Nullable(Decimal(12, 2)),
        items Nullable(Int32), express Nullable(Bool),
        reference Nullable(UUID), note Nullable(String)"""

    def __init__(self, dsn: str) -> None:
        self._client = clickhouse_connect.get_client(dsn=dsn)
        self._client.command(
            f"""create table raw_orders (deleted UInt8, {self._TYPES}, version UInt64)
                engine = ReplacingMergeTree(version, deleted) order by id settings fsync_after_insert = 1"""
        )
        self._batch = pa.table({})
        self._version = 0

    def fill(self, rows: pa.Table) -> None:
        self.ready(rows)
        self.merge()

    def ready(self, batch: pa.Table) -> None:
        self._version += 1
        place = batch.column_names.index("deleted")
        batch = batch.set_column(place, "deleted", batch["deleted"].cast(pa.uint8()))
        version = pa.array([self._version] * batch.num_rows, pa.uint64())
        self._batch = batch.append_column("version", version)

    def merge(self) -> None:
        self._client.insert_arrow("raw_orders", self._batch)

    def close(self) -> None:
        self._client.close()


class RawParquet:
    """One file for each batch, on the disk when it is there."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._batch = pa.table({})

    def fill(self, rows: pa.Table) -> None:
        self.ready(rows)
        self.merge()

    def ready(self, batch: pa.Table) -> None:
        self._batch = batch

    def merge(self) -> None:
        with (self._folder / f"{secrets.token_hex(8)}.parquet").open("wb") as file:
            pq.write_table(self._batch, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        pass


def _as_csv(rows: pa.Table) -> bytes:
    """A timestamp as COPY reads it."""
    place = rows.column_names.index("placed_at")
    rows = rows.set_column(place, "placed_at", rows["placed_at"].cast(pa.string()))
    written = io.BytesIO()
    csv.write_csv(rows, written, csv.WriteOptions(include_header=False))
    return written.getvalue()
