"""What an engine does by itself with a ready-made batch: one bulk merge, no progress, no checks, no conversion."""

# ruff: noqa: S608 -- statements are put together from constants of this file

from __future__ import annotations

import io
from pathlib import Path
from typing import Protocol

import duckdb
import psycopg
import pyarrow as pa
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

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._path = str(folder)
        self._batch: DataFrame | None = None

    def fill(self, rows: pa.Table) -> None:
        frame = self._spark.createDataFrame(rows.select(_NAMES))
        frame.write.format("delta").mode("append").option("delta.enableDeletionVectors", "true").save(self._path)

    def ready(self, batch: pa.Table) -> None:
        self.close()
        self._batch = self._spark.createDataFrame(batch).persist()
        self._batch.count()
        self._batch.createOrReplaceTempView("raw_batch")

    def merge(self) -> None:
        self._spark.sql(_MERGE.format(target=f"delta.`{self._path}`", source="raw_batch")).collect()

    def close(self) -> None:
        if self._batch is not None:
            self._batch.unpersist()


def _as_csv(rows: pa.Table) -> bytes:
    """A timestamp as COPY reads it."""
    place = rows.column_names.index("placed_at")
    rows = rows.set_column(place, "placed_at", rows["placed_at"].cast(pa.string()))
    written = io.BytesIO()
    csv.write_csv(rows, written, csv.WriteOptions(include_header=False))
    return written.getvalue()
