"""One line of JSON a row on standard output. It remembers nothing: every start tells the whole log again."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from apply_spark.destination import Batch
from apply_spark.progress import Progress
from schemas.identifiers import DestinationName
from schemas.settings import checked
from schemas.table import TableSchema


class StdoutOptions(BaseModel, frozen=True, extra="forbid"):
    """It has none."""


class StdoutDestination:
    """For eyes and pipes: `copy`, `truncate`, `upsert`, `delete` and, for tables without a key, `net` lines."""

    def __init__(self, name: DestinationName, options: Mapping[str, Any]) -> None:
        checked(StdoutOptions, options, f"destinations.{name}")
        self.name = name

    def startup(self) -> Progress | None:
        return None

    def shutdown(self) -> None:
        sys.stdout.flush()

    def drop_table_for_copy(self, schema: TableSchema, progress: Progress) -> None:
        del progress
        sys.stdout.write(f'{{"table":"{schema.name}","event":"begin copy"}}\n')

    def write_table_rows(self, schema: TableSchema, rows: DataFrame, progress: Progress) -> None:
        del progress
        self._print(rows, schema, F.lit("copy"))

    def write_events(self, batch: Batch) -> None:
        for changes in batch.tables:
            if changes.truncate:
                sys.stdout.write(f'{{"table":"{changes.schema.name}","event":"truncate"}}\n')
            event = F.when(F.col("deleted"), "delete").otherwise("upsert") if changes.schema.key else F.lit("net")
            self._print(changes.rows, changes.schema, event)
        sys.stdout.flush()

    def save_progress(self, progress: Progress) -> None:
        del progress

    def _print(self, rows: DataFrame, schema: TableSchema, event: Column) -> None:
        shown = [name for name in ("key", "row", "net") if name in rows.columns]
        line = F.to_json(F.struct(F.lit(str(schema.name)).alias("table"), event.alias("event"), *shown))
        for (text,) in rows.select(line).toLocalIterator():
            sys.stdout.write(text + "\n")
