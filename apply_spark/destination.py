"""The Destination Protocol: a place where changes become rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from apply_spark.config import Mode
from apply_spark.progress import Progress
from apply_spark.rows import Rows
from schemas.evolution import SchemaChange
from schemas.identifiers import DestinationName
from schemas.table import Column, TableSchema


@dataclass(frozen=True)
class Ending:
    """What a truncate does to rows that stay: those that are current get other values.

    The values are texts, as Postgres writes them, in `missing` of the columns."""

    current: Column
    """Rows are current that have this value in this column."""
    values: tuple[Column, ...]


@dataclass(frozen=True)
class TableChanges:
    """What an interval, or a piece of a resumed copy, does to one table, folded: first the truncate or the ending, then
    every row at most once.

    With a key, `rows` has the columns `deleted` (boolean), `key` (struct of the key columns), `row` (struct of all
    columns; null where deleted) and, where `partial`, `missing` (names of fields that were never sent) and `base` (the
    key under which the destination holds them, before any row of this batch is written). Without a key: `row`, and
    `net`, how many copies of it come (above 0) or go (below 0).
    Field names are `schemas.envelope.avro_name` of the column names; values are as in Avro, without logical types."""

    schema: TableSchema
    truncate: bool
    rows: Rows
    partial: bool
    """Whether any row has `missing` fields."""
    ending: Ending | None = None
    """Only for a destination that says, by its `modes`, that it has `soft_delete` and `history`."""


@dataclass(frozen=True)
class Alteration:
    """A table's new shape, and what makes it of the one that the destination has. Key columns keep their values."""

    before: TableSchema
    after: TableSchema
    changes: tuple[SchemaChange, ...]
    """May be empty: the destination has another name for the type of a column, or none."""


@dataclass(frozen=True)
class Batch:
    """An interval, over all tables, and the progress it leads to. Rows have the shapes that the alterations lead to."""

    tables: tuple[TableChanges, ...]
    progress: Progress
    altered: tuple[Alteration, ...] = ()


ALL_MODES = frozenset(Mode)
APPENDED_MODES = frozenset({Mode.MIRROR, Mode.LOG})
"""What every destination has that holds to this contract, apart from `TableChanges.ending`."""


@dataclass(frozen=True)
class Connector:
    """What a destination that Spark itself writes to needs of the session, which is there before its `startup`."""

    jars: tuple[str, ...] = ()
    """Groups of jars that the console fetches."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of Spark; those of `apply.spark` go before them."""


class Destination(Protocol):
    """A place where changes become rows.

    Delivery is at least once; every method may be repeated, also after a crash in its middle. Each method that takes a
    Progress makes it durable in the same transaction as its rows, after it has made sure that nobody else wrote since
    (DestinationTaken). Calls never overlap.

    Where there are no transactions over tables, rows and progress of each table are one. A crash then leaves some
    tables of a batch ahead of the others: each has its own progress at the next start, the destination that from before
    the batch, and nothing is written twice. One that Spark itself writes to has an attribute `connector`; one that has
    other modes than `mirror` and `log` an attribute `modes`."""

    @property
    def name(self) -> DestinationName: ...

    def startup(self) -> Progress | None:
        """Takes hold of the destination (else DestinationInUse) and returns what was stored with the last batch."""

    def shutdown(self) -> None:
        """Lets go. May be called without a startup."""

    def drop_table_for_copy(self, schema: TableSchema, progress: Progress) -> None:
        """Leaves the table there, empty, in this shape.

        Where a mirror stands already, a destination that can builds the new one beside it: readers see the rows of
        before until a progress says that the table is Ready. What comes meanwhile is written to the new one."""

    def write_table_rows(self, schema: TableSchema, rows: Rows, progress: Progress) -> None:
        """Appends copied rows, with the one column `row`; never a key twice.

        A copy that was interrupted and resumed has some keys twice: its rows come as upserts, by `write_events`."""

    def write_events(self, batch: Batch) -> None:
        """Makes all alterations, then writes the changes of all tables and the progress. Raises TableFailed where one
        table cannot be written; then nothing was written, except the tables that the error names as written, and the
        batch comes again without that table and without those. It is tried again by itself where the reason is an error
        that is timed."""

    def save_progress(self, progress: Progress) -> None:
        """Stores progress alone."""
