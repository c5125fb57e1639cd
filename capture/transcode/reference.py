"""The reference path: a decoded tuple to Python values to Avro bytes, with fastavro. The compiled kernel's oracle.

In: column texts as Postgres prints them. Out: key and value in Confluent's wire format. A value that its type cannot
carry raises ValueNotCarried, which names the column and never the value.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro

from capture.pgoutput.messages import UNCHANGED, ColumnValue
from schemas.envelope import CONNECTOR, VERSION, Op, avro_name, envelope_schema, key_schema
from schemas.identifiers import Epoch, PipelineName, SchemaId
from schemas.lsn import Lsn
from schemas.pg_types.pg_type import ValueNotCarried
from schemas.pg_types.registry import pg_type
from schemas.table import TableSchema
from schemas.wire import header


@dataclass(slots=True)
class Origin:
    """Where in the log a row stands. One object serves a whole transaction; `ordinal` and `lsn` move on."""

    commit_lsn: int
    commit_ts: int
    xid: int | None
    lsn: int
    ordinal: int
    snapshot: str = "false"


class Transcoder:
    """Writes the records of one version of one table."""

    def __init__(
        self,
        pipeline: PipelineName,
        database: str,
        table: TableSchema,
        ids: tuple[SchemaId, SchemaId | None],
        epoch: Epoch,
    ) -> None:
        value_id, key_id = ids
        self.table = table
        self.schema_id = value_id
        self._header = header(value_id)
        envelope = envelope_schema(pipeline, table)
        self._schema = fastavro.parse_schema(envelope)
        self._row_name = f"{envelope['namespace']}.Value"
        self._fields = [
            (avro_name(column.name), column.name, pg_type(column.type_oid).parse) for column in table.columns
        ]
        self._key_columns = [index for index, column in enumerate(table.columns) if column.key]
        self._key_schema = fastavro.parse_schema(key_schema(pipeline, table))
        self._key_header = header(key_id) if key_id is not None else None
        self._source = {
            "version": VERSION,
            "connector": CONNECTOR,
            "name": pipeline,
            "db": database,
            "schema": table.name.schema,
            "table": table.name.name,
            "epoch": epoch,
        }

    def key_of(self, row: Sequence[ColumnValue]) -> tuple[ColumnValue, ...]:
        return tuple(row[index] for index in self._key_columns)

    def key(self, row: Sequence[ColumnValue]) -> bytes | None:
        """The record's key: the row's identity as Avro; None for a table without one."""
        if self._key_header is None:
            return None
        out = io.BytesIO()
        out.write(self._key_header)
        fields = [self._fields[index] for index in self._key_columns]
        fastavro.schemaless_writer(out, self._key_schema, self._values(fields, self.key_of(row)))
        return out.getvalue()

    def value(
        self, op: Op, before: Sequence[ColumnValue] | None, after: Sequence[ColumnValue] | None, origin: Origin
    ) -> bytes:
        now = time.time_ns()
        unchanged: list[str] = []
        if after is not None:
            unchanged = [self._fields[i][1] for i, value in enumerate(after) if value is UNCHANGED]
        out = io.BytesIO()
        out.write(self._header)
        fastavro.schemaless_writer(
            out,
            self._schema,
            {
                "before": self._row(before),
                "after": self._row(after),
                "source": self._source
                | {
                    "ts_ms": origin.commit_ts // 1000,
                    "ts_us": origin.commit_ts,
                    "ts_ns": origin.commit_ts * 1000,
                    "snapshot": origin.snapshot,
                    "txId": origin.xid,
                    "lsn": origin.lsn,
                    "commit_lsn": origin.commit_lsn,
                    "ordinal": origin.ordinal,
                },
                "op": op.value,
                "ts_ms": now // 1_000_000,
                "ts_us": now // 1000,
                "ts_ns": now,
                "unchanged": unchanged,
            },
        )
        return out.getvalue()

    def _row(self, row: Sequence[ColumnValue] | None) -> tuple[str, dict[str, Any]] | None:
        return None if row is None else (self._row_name, self._values(self._fields, row))

    def _values(
        self, fields: list[tuple[str, str, Callable[[str], Any]]], row: Sequence[ColumnValue]
    ) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for (name, column, parse), raw in zip(fields, row, strict=True):
            if raw is None or raw is UNCHANGED:
                values[name] = None
                continue
            try:
                values[name] = parse(raw.decode("utf-8"))
            except ValueNotCarried as error:
                raise ValueNotCarried(f"Column {column}: {error.reason}", solution=error.solution) from None
            except ValueError:
                raise ValueNotCarried(
                    f"Column {column} has a value that is not valid text of its type.",
                    solution="Correct the row, or leave the column out of the publication; then resync the table.",
                ) from None
        return values


def snapshot_origin(generation: Lsn, copied_at: int) -> Origin:
    """The origin of copied rows: a real LSN, never null."""
    return Origin(commit_lsn=generation, commit_ts=copied_at, xid=None, lsn=generation, ordinal=0, snapshot="true")
