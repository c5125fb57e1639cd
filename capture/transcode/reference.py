"""The reference path: a decoded tuple to Python values to Avro bytes, with fastavro. The compiled kernel's oracle.

In: column texts as Postgres prints them. Out: key and value in Confluent's wire format. A value that its type cannot
carry raises ValueNotCarried, which names the column and never the value.
"""

from __future__ import annotations

import io
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import fastavro

from capture.pgoutput.decoder import decode
from capture.pgoutput.messages import UNCHANGED, ColumnValue, Delete, Insert, Update
from capture.transcode.conversion import Conversion, conversion
from capture.transcode.copy_text import decode_copy_row
from capture.transcode.updates import InPlace, settle
from schemas.envelope import CONNECTOR, VERSION, Op, avro_name, envelope_schema, key_schema
from schemas.errors import MalformedMessage
from schemas.identifiers import Epoch, PipelineName, SchemaId, TableId
from schemas.lsn import Lsn
from schemas.table import Column, TableSchema
from schemas.wire import header

Record: TypeAlias = tuple[bytes | None, bytes]
"""A key and a value."""
_TAG_AND_RELATION = 5
COPY_HEADER = struct.Struct("!cI")
"""Of a CopyData message: its letter, and its length without the letter."""


@dataclass(slots=True)
class Origin:
    """Where in the log a row stands. One object serves a whole transaction; `ordinal` and `lsn` move on."""

    commit_lsn: int
    commit_ts: int
    xid: int | None
    lsn: int
    ordinal: int
    snapshot: str = "false"


class RecordSink(Protocol):
    """Takes records one by one."""

    def add(self, key: bytes | None, value: bytes) -> None: ...


class Transcoder:
    """Writes the records of one version of one table."""

    def __init__(
        self,
        pipeline: PipelineName,
        database: str,
        table: TableSchema,
        ids: tuple[SchemaId, SchemaId | None],
        epoch: Epoch,
        now_ns: Callable[[], int] = time.time_ns,
        conversions: Callable[[Column], Conversion] = conversion,
    ) -> None:
        value_id, key_id = ids
        self.table = table
        self.schema_id = value_id
        self._header = header(value_id)
        envelope = envelope_schema(pipeline, table)
        self._schema = fastavro.parse_schema(envelope)
        self._row_name = f"{envelope['namespace']}.Value"
        self._now_ns = now_ns
        self._fields = [(avro_name(column.name), column.name, conversions(column)) for column in table.columns]
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

    def _key_of(self, row: Sequence[ColumnValue]) -> tuple[ColumnValue, ...]:
        return tuple(row[index] for index in self._key_columns)

    def key(self, row: Sequence[ColumnValue]) -> bytes | None:
        """The record's key: the row's identity as Avro; None for a table without one."""
        if self._key_header is None:
            return None
        self._count(row)
        out = io.BytesIO()
        out.write(self._key_header)
        fields = [self._fields[index] for index in self._key_columns]
        fastavro.schemaless_writer(out, self._key_schema, self._values(fields, self._key_of(row)))
        return out.getvalue()

    def value(
        self, op: Op, before: Sequence[ColumnValue] | None, after: Sequence[ColumnValue] | None, origin: Origin
    ) -> bytes:
        self._count(before)
        self._count(after)
        now = self._now_ns()
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

    def change(self, frame: memoryview | bytes, origin: Origin, offset: int = 0) -> Record | None:
        """The record of the Insert, Update or Delete that begins at `offset`; None for a move, which is two records."""
        payload = memoryview(frame)[offset:]
        message = None if relation_of(payload) is None else decode(payload)
        match message:
            case Insert(new=new):
                return self._record(Op.CREATE, None, new, origin)
            case Update():
                self._count(message.old)
                self._count(message.new)
                settled = settle(self.table.columns, message)
                if isinstance(settled, InPlace):
                    return self._record(Op.UPDATE, settled.before, settled.after, origin)
                return None
            case Delete(old=old):
                return self._record(Op.DELETE, old, None, origin)
            case _:
                raise MalformedMessage("The message is not a change of a row", offset=0)

    def copy_row(self, line: memoryview | bytes | bytearray, origin: Origin) -> Record:
        """The record of one row of COPY in text format, its newline included."""
        return self._record(Op.READ, None, decode_copy_row(bytes(line), len(self._fields)), origin)

    def copy_rows(self, messages: memoryview | bytes | bytearray, origin: Origin, rows: RecordSink) -> int:
        """Adds the records of the CopyData messages that come first to `rows`.

        Returns how many bytes it read: it stops before what is cut off or no CopyData. `origin.ordinal` moves on."""
        at = 0
        while len(messages) - at >= COPY_HEADER.size:
            kind, size = COPY_HEADER.unpack_from(messages, at)
            if kind != b"d":
                break
            if size < COPY_HEADER.size - 1:
                raise MalformedMessage("A message of COPY is shorter than its length", offset=at)
            if len(messages) - at - 1 < size:
                break
            rows.add(*self.copy_row(messages[at + COPY_HEADER.size : at + 1 + size], origin))
            origin.ordinal += 1
            at += 1 + size
        return at

    def _record(
        self, op: Op, before: Sequence[ColumnValue] | None, after: Sequence[ColumnValue] | None, origin: Origin
    ) -> Record:
        value = self.value(op, before, after, origin)
        row = after if after is not None else before
        return None if row is None else self.key(row), value

    def _row(self, row: Sequence[ColumnValue] | None) -> tuple[str, dict[str, Any]] | None:
        return None if row is None else (self._row_name, self._values(self._fields, row))

    def _count(self, row: Sequence[ColumnValue] | None) -> None:
        if row is not None and len(row) != len(self._fields):
            raise MalformedMessage(f"A row has {len(row)} columns instead of {len(self._fields)}", offset=0)

    def _values(self, fields: list[tuple[str, str, Conversion]], row: Sequence[ColumnValue]) -> dict[str, Any]:
        return {
            name: None if raw is None or raw is UNCHANGED else convert(raw)
            for (name, _, convert), raw in zip(fields, row, strict=True)
        }


def snapshot_origin(generation: Lsn, copied_at: int) -> Origin:
    """The origin of copied rows: a real LSN, never null."""
    return Origin(commit_lsn=generation, commit_ts=copied_at, xid=None, lsn=generation, ordinal=0, snapshot="true")


def relation_of(frame: memoryview | bytes, offset: int = 0) -> TableId | None:
    """The relation of the Insert, Update or Delete that begins at `offset`; None for every other message."""
    message = memoryview(frame)[offset:]
    if not message:
        raise MalformedMessage("The message ends early", offset=0)
    if message[0] not in b"IUD":
        return None
    if len(message) < _TAG_AND_RELATION:
        raise MalformedMessage("The message ends early", offset=1)
    return TableId(int.from_bytes(message[1:_TAG_AND_RELATION], "big"))
