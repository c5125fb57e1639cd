"""Which path writes a table's records: the compiled kernel where it is installed, else the reference path.

Both give the same bytes and the same errors; `PENSTOCK_KERNEL=reference` asks for the slow one.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from capture.pgoutput.messages import ColumnValue
from capture.transcode import reference
from capture.transcode.reference import Origin, Record, Transcoder
from schemas.envelope import Op
from schemas.identifiers import Epoch, PipelineName, SchemaId, TableId
from schemas.table import TableSchema

KERNEL = "PENSTOCK_KERNEL"
_REFERENCE = "reference"

log = structlog.get_logger(__name__)


class TableTranscoder(Protocol):
    """Writes the records of one version of one table, in one thread.

    What the bytes are not raises MalformedMessage; what a type cannot carry raises ValueNotCarried."""

    @property
    def table(self) -> TableSchema: ...

    @property
    def schema_id(self) -> SchemaId: ...

    def key(self, row: Sequence[ColumnValue]) -> bytes | None:
        """The record's key: the row's identity as Avro; None for a table without one."""

    def value(
        self, op: Op, before: Sequence[ColumnValue] | None, after: Sequence[ColumnValue] | None, origin: Origin
    ) -> bytes: ...

    def change(self, frame: memoryview | bytes, origin: Origin, offset: int = 0) -> Record | None:
        """The record of the Insert, Update or Delete that begins at `offset`; None for a move, which is two records."""

    def copy_row(self, line: memoryview | bytes | bytearray, origin: Origin) -> Record:
        """The record of one row of COPY in text format, its newline included."""

    def copy_rows(
        self, messages: memoryview | bytes | bytearray, origin: Origin, rows: list[dict[str, bytes | None]]
    ) -> tuple[int, int]:
        """The records of the CopyData messages that come first, appended to `rows` as produce_batch takes them.

        Returns how many bytes it read, and how many bytes the values have: it stops before what is cut off or no
        CopyData. `origin.ordinal` moves on."""


class RelationOf(Protocol):
    """The relation of the Insert, Update or Delete that begins at `offset`; None for every other message."""

    def __call__(self, frame: memoryview | bytes, offset: int = 0) -> TableId | None: ...


@dataclass(frozen=True)
class Path:
    """The constructor of transcoders, and what finds the table that a message is about."""

    transcoder: Callable[..., TableTranscoder]
    relation_of: RelationOf


def transcoder(
    pipeline: PipelineName,
    database: str,
    table: TableSchema,
    ids: tuple[SchemaId, SchemaId | None],
    epoch: Epoch,
    now_ns: Callable[[], int] = time.time_ns,
) -> TableTranscoder:
    return chosen_path().transcoder(pipeline, database, table, ids, epoch, now_ns)


def chosen_path() -> Path:
    return _path(os.environ.get(KERNEL, ""))


def kernel_path() -> Path | None:
    """The compiled path; None where it is not installed."""
    try:
        from capture.transcode import kernel  # noqa: PLC0415 -- an optional extension
    except ImportError:
        return None
    return Path(kernel.KernelTranscoder, kernel.relation_of)


REFERENCE_PATH = Path(Transcoder, reference.relation_of)


@functools.cache
def _path(wanted: str) -> Path:
    """Decided once a process, so that it is logged once."""
    if wanted == _REFERENCE:
        log.info("transcoding on the reference path", reason=f"{KERNEL} is {_REFERENCE}")
        return REFERENCE_PATH
    compiled = kernel_path()
    if compiled is None:
        log.warning("transcoding on the reference path", reason="the compiled kernel is not installed")
        return REFERENCE_PATH
    log.info("transcoding with the compiled kernel")
    return compiled
