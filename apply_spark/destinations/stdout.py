"""One line of JSON a row on standard output. It remembers nothing: every start tells the whole log again."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from apply_spark.destination import Batch
from apply_spark.progress import Progress
from apply_spark.rows import Rows
from schemas.envelope import avro_name
from schemas.identifiers import DestinationName
from schemas.pg_types.registry import column_type
from schemas.settings import checked
from schemas.table import Column as TableColumn
from schemas.table import TableSchema


class StdoutOptions(BaseModel, frozen=True, extra="forbid"):
    """It has none."""


class StdoutDestination:
    """For eyes and pipes: `copy`, `alter`, `truncate`, `upsert`, `delete`, and `net` for tables without a key."""

    def __init__(self, name: DestinationName, options: Mapping[str, Any]) -> None:
        checked(StdoutOptions, options, f"destinations.{name}")
        self.name = name

    def startup(self) -> Progress | None:
        return None

    def shutdown(self) -> None:
        sys.stdout.flush()

    def drop_table_for_copy(self, schema: TableSchema, progress: Progress) -> None:
        del progress
        self._tell(schema, "begin copy")

    def write_table_rows(self, schema: TableSchema, rows: Rows, progress: Progress) -> None:
        del progress
        self._print(rows.frame(), schema, F.lit("copy"))

    def write_events(self, batch: Batch) -> None:
        for alteration in batch.altered:
            self._tell(alteration.after, "alter", columns=[column.name for column in alteration.after.columns])
        for changes in batch.tables:
            if changes.truncate:
                self._tell(changes.schema, "truncate")
            event = F.when(F.col("deleted"), "delete").otherwise("upsert") if changes.schema.key else F.lit("net")
            self._print(changes.rows.frame(), changes.schema, event)
        sys.stdout.flush()

    def save_progress(self, progress: Progress) -> None:
        del progress

    def _tell(self, schema: TableSchema, event: str, **further: list[str]) -> None:
        told = {"table": str(schema.name), "event": event, **further}
        line = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
        sys.stdout.write(line + "\n")

    def _print(self, rows: DataFrame, schema: TableSchema, event: Column) -> None:
        """Columns under their own names; NULL is written, and what was not sent is named in `missing`."""
        shown = [F.lit(str(schema.name)).alias("table"), event.alias("event")]
        if "key" in rows.columns:
            shown.append(_named(schema.key, "key"))
        shown.append(_named(schema.columns, "row"))
        shown += [F.col(name) for name in ("missing", "net") if name in rows.columns]
        line = F.to_json(F.struct(*shown), {"ignoreNullFields": "false"})
        for (text,) in rows.select(line).toLocalIterator():
            sys.stdout.write(text + "\n")


def _named(columns: tuple[TableColumn, ...], image: str) -> Column:
    fields = [_shown(column, F.col(image)[avro_name(column.name)]).alias(column.name) for column in columns]
    return F.when(F.col(image).isNotNull(), F.struct(*fields)).alias(image)


def _shown(column: TableColumn, value: Column) -> Column:
    """An array is a list, or the literal that no list can hold: a variant is either."""
    if column_type(column).element is None:
        return value
    return F.coalesce(F.to_variant_object(value["member0"]), value["member1"].cast("variant"))
