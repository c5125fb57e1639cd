"""What both paths promise: the transcoder of a table, the pump that a stream runs through, and the sender behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from confluent_kafka import KafkaError

from capture.pgoutput.messages import ColumnValue
from capture.transcode.reference import Origin, Record
from schemas.envelope import Op
from schemas.identifiers import SchemaId, TableId
from schemas.table import TableSchema


class Records(Protocol):
    """Records in their order, on their way to one topic."""

    @property
    def size(self) -> int:
        """How many bytes the values have."""

    @property
    def dicts(self) -> list[dict[str, bytes | None]]:
        """As produce_batch takes them: `key` and `value`."""

    def __len__(self) -> int: ...

    def add(self, key: bytes | None, value: bytes) -> None: ...


Send: TypeAlias = Callable[[str, Records], None]
"""Takes a topic and records for it; may wait."""


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

    def copy_rows(self, messages: memoryview | bytes | bytearray, origin: Origin, rows: Records) -> int:
        """Adds the records of the CopyData messages that come first to `rows`, which are of the transcoder's path.

        Returns how many bytes it read: it stops before what is cut off or no CopyData. `origin.ordinal` moves on."""


class PumpedTable(Protocol):
    """A table in the stream: where its records go and how they are written."""

    topic: str
    transcoder: TableTranscoder
    errored: bool


class PumpedTables(Protocol):
    """The tables that the stream has met."""

    def __getitem__(self, relation: TableId) -> PumpedTable: ...


class Pump(Protocol):
    """Knows where in the log the stream stands; sends the one record of each change and counts it, in one thread.

    It takes Begin, Commit, and the changes that are one record, of tables that are not errored. Every other frame is
    left to the caller, who does what it says through `send` and `origin`."""

    safe: int
    """Where a window may end: behind the last commit. The caller moves it on with keepalives."""

    full: int
    """How many rows fill a window: `run` stops at the first commit that leaves so many."""

    @property
    def origin(self) -> Origin:
        """Of the next change. A change that the caller sends or skips moves its ordinal by one."""

    @property
    def in_transaction(self) -> bool: ...

    @property
    def rows(self) -> int:
        """Records sent since the last `reset`."""

    @property
    def table(self) -> PumpedTable:
        """The table of the last change: whose it is if `run` raises ValueNotCarried, which skips that change."""

    @property
    def used(self) -> int:
        """How many bytes the last `run` was done with, a frame that it left and one that it raised for included."""

    def run(self, messages: memoryview | bytes) -> memoryview | None:
        """Takes the CopyData messages that come first, and sends what they make; gives the frame it left, if any.

        It stops before what is cut off or no CopyData, behind the frame that it leaves, and where the window is full.
        Raises ValueNotCarried behind a change that cannot be carried; all before it is sent."""

    def send(self, table: PumpedTable, key: bytes | None, value: bytes) -> None:
        """Raises RecordTooLarge."""

    def moved(self) -> dict[tuple[str, SchemaId], tuple[int, int]]:
        """Rows and bytes since the last `reset`, for each topic and schema that has some."""

    def reset(self) -> None:
        """A checkpoint covers what was counted."""


class Sender(Protocol):
    """An idempotent producer in one thread, which librdkafka's threads serve."""

    def __len__(self) -> int:
        """Records that Kafka has not confirmed."""

    @property
    def failure(self) -> KafkaError | None:
        """What ended the producer, if something did."""

    def meet(self, seconds: float) -> None:
        """Asks the broker for its topics, whatever it answers: one that was never asked delays the first record."""

    def send(self, topic: str, records: Records) -> None:
        """Queues records of the sender's path. Raises KafkaException for the first that it does not take."""

    def poll(self) -> None: ...

    def flush(self, seconds: float) -> None:
        """Waits at most so long until Kafka has confirmed all."""

    def purge(self) -> None:
        """Forgets what Kafka has not confirmed."""
