"""A change log in Parquet files: not what the tables are, but what every interval did to them, for good.

Each interval of a table is one file, `<schema>/<table>/<generation>/<from>-<to>.parquet`, with the columns of the
source and those of the log:

    _op        r: copied; u: the row is this now; d: it is gone; t: the table was truncated, before the other rows
    _from_lsn  the interval whose end the row shows: commits from here
    _lsn       to before here
    _missing   columns that Postgres did not send: they are as they were, not NULL
    _base      the key under which the row was, where something is missing
    _net       without a key: how many copies came (above 0) or went (below 0)

Batches come folded, so the log has, for each key and interval, the last image, and not every change in between. A file
belongs to the log once a manifest (parquet_manifests.py) names it: one manifest for all tables of an interval, so that
all of it appears at once. An interval that is written again gets the same names.

Apply's own process writes them, through a small store of objects (parquet_store.py): a folder, or a bucket of S3.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from apply_spark.config import Mode
from apply_spark.destination import Batch, TableChanges
from apply_spark.destinations.arrow_types import image_of, values_of
from apply_spark.destinations.parquet_manifests import Manifests
from apply_spark.destinations.parquet_options import ParquetOptions, made_store
from apply_spark.destinations.parquet_types import parquet_column
from apply_spark.errors import DestinationAway, DestinationInUse, NotHeld, TableFailed
from apply_spark.progress import Progress
from apply_spark.rows import Rows
from schemas.envelope import avro_name
from schemas.errors import DestinationError
from schemas.failpoints import failpoint
from schemas.identifiers import DestinationName
from schemas.phases import DataSync, FinishedCopy
from schemas.settings import checked
from schemas.table import TableSchema
from schemas.topics import escaped

OWN_FOLDER = "penstock"
OWN_COLUMNS = ("_op", "_from_lsn", "_lsn", "_missing", "_base", "_net")


class ParquetDestination:
    """One log, in a folder or under a prefix of a bucket."""

    modes = frozenset({Mode.MIRROR})

    def __init__(self, name: DestinationName, options: Mapping[str, Any]) -> None:
        self.name = name
        self._store = made_store(checked(ParquetOptions, options, f"destinations.{name}"))
        self._manifests: Manifests | None = None
        self._number = 0
        self._owner = secrets.token_hex(8)
        self._progress: Progress | None = None

    def startup(self) -> Progress | None:
        if self._manifests is not None:
            raise DestinationInUse(f"This apply has opened destination {self.name} already.")
        self._store.open()
        manifests = Manifests(self._store, f"{OWN_FOLDER}/{escaped(self.name)}")
        self._number, found = manifests.newest()
        stored = found["progress"] if found is not None else None
        self._progress = None if stored is None else Progress.restored(tuple(stored[0]), stored[1][2])
        self._manifests = manifests
        try:
            self._add([], self._progress)
        except DestinationError:
            self._manifests = None
            raise
        return self._progress

    def shutdown(self) -> None:
        self._manifests = None

    def drop_table_for_copy(self, schema: TableSchema, progress: Progress) -> None:
        if schema.name.schema == OWN_FOLDER:
            raise TableFailed(schema.name, NotHeld("The folder penstock of a destination is penstock's own."))
        taken = [column.name for column in schema.columns if column.name in OWN_COLUMNS]
        if taken:
            raise TableFailed(schema.name, NotHeld(f"Its column {taken[0]} has the name of a column of the log."))
        self._add([_entry(schema, "copy begins", shape=schema.to_json())], progress)

    def write_table_rows(self, schema: TableSchema, rows: Rows, progress: Progress) -> None:
        arrow = rows.arrow()
        self._add(self._written(schema, arrow.filter(pc.is_valid(arrow["row"])), progress), progress)

    def write_events(self, batch: Batch) -> None:
        entries = [_entry(each.after, "altered", shape=each.after.to_json()) for each in batch.altered]
        for changes in batch.tables:
            rows = changes.rows.arrow()
            entries += self._written(changes.schema, rows, batch.progress, changes)
            failpoint("parquet.written", DestinationAway)
        self._add(entries, batch.progress)

    def save_progress(self, progress: Progress) -> None:
        self._add([], progress)

    def _written(
        self, schema: TableSchema, rows: pa.Table, progress: Progress, changes: TableChanges | None = None
    ) -> list[dict[str, Any]]:
        """The rows as a file that no manifest names yet."""
        truncate = changes is not None and changes.truncate
        if rows.num_rows == 0 and not truncate:
            return []
        now = progress.tables[schema.name]
        before = self._progress.tables.get(schema.name, now) if self._progress is not None else now
        name = f"{before.lsn:016x}-{now.lsn:016x}"
        if isinstance(now.phase, DataSync | FinishedCopy):
            name += f".copy-{before.copy_offset}-{now.copy_offset}"
        parts = (escaped(schema.name.schema), escaped(schema.name.name), f"{now.generation:016x}", f"{name}.parquet")
        file = "/".join(parts)
        table = _logged(schema, rows, truncate=truncate, window=(int(before.lsn), int(now.lsn)))
        self._store.put(file, lambda opened: pq.write_table(table, opened, compression="zstd"))
        return [_entry(schema, "rows", file=file, row_count=table.num_rows)]

    def _add(self, entries: Sequence[dict[str, Any]], progress: Progress | None) -> None:
        assert self._manifests is not None  # noqa: S101 -- startup comes first
        stored = None if progress is None else progress.stored()
        failpoint("parquet.adding", DestinationAway)
        self._manifests.add(self._number + 1, {"owner": self._owner, "tables": list(entries), "progress": stored})
        failpoint("parquet.added", DestinationAway)
        self._number += 1
        self._progress = progress


def _entry(schema: TableSchema, what: str, **further: Any) -> dict[str, Any]:  # noqa: ANN401 -- JSON
    return {"schema": schema.name.schema, "table": schema.name.name, "what": what, **further}


def _logged(schema: TableSchema, rows: pa.Table, *, truncate: bool, window: tuple[int, int]) -> pa.Table:
    """The rows with the columns of the log; a truncate first, as a row of its own."""
    held = [(column, parquet_column(column)) for column in schema.columns]
    keys = pa.struct([(column.name, parquet_column(column).arrow) for column in schema.key])
    own = [
        ("_op", pa.string()),
        ("_from_lsn", pa.uint64()),
        ("_lsn", pa.uint64()),
        *([("_missing", pa.list_(pa.string())), ("_base", keys)] if schema.key else [("_net", pa.int64())]),
    ]
    fields = pa.schema([*own, *((column.name, each.arrow) for column, each in held)])
    parts = [_truncated(fields, window)] if truncate else []
    for batch in rows.to_batches():
        if batch.num_rows:
            _refuse_unheld_values(schema, batch)
            columns = [*_own_arrays(schema, batch, keys, window)]
            for column, each in held:
                columns.append(each.converted(values_of(batch, image_of(column, batch.schema.names), column)))
            parts.append(pa.RecordBatch.from_arrays(columns, schema=fields))
    return pa.Table.from_batches(parts, fields)


def _own_arrays(
    schema: TableSchema, batch: pa.RecordBatch, keys: pa.DataType, window: tuple[int, int]
) -> list[pa.Array]:
    count, names = batch.num_rows, batch.schema.names
    if "deleted" in names:
        op = pc.if_else(batch.column("deleted"), "d", "u")
    elif "net" in names:
        op = pc.if_else(pc.less(batch.column("net"), 0), "d", "u")
    else:
        op = pa.repeat(pa.scalar("r"), count)
    lsns = [pa.repeat(pa.scalar(lsn, pa.uint64()), count) for lsn in window]
    if not schema.key:
        return [op, *lsns, batch.column("net") if "net" in names else pa.repeat(pa.scalar(1, pa.int64()), count)]
    if "missing" not in names:
        return [op, *lsns, pa.nulls(count, pa.list_(pa.string())), pa.nulls(count, keys)]
    return [op, *lsns, _source_names(schema, batch.column("missing")), _bases(schema, batch, keys)]


def _source_names(schema: TableSchema, missing: pa.Array) -> pa.Array:
    """What was not sent, under the names of the source."""
    fields = pa.array([avro_name(column.name) for column in schema.columns])
    names = pa.array([column.name for column in schema.columns])
    items = names.take(pc.index_in(missing.flatten(), value_set=fields))
    lengths = pc.list_value_length(missing).fill_null(0)
    offsets = pc.cumulative_sum(pa.concat_arrays([pa.array([0], lengths.type), lengths])).cast(pa.int32())
    return pa.ListArray.from_arrays(offsets, items)


def _bases(schema: TableSchema, batch: pa.RecordBatch, keys: pa.DataType) -> pa.Array:
    fields = [parquet_column(column).converted(values_of(batch, "base", column)) for column in schema.key]
    return pa.StructArray.from_arrays(fields, fields=list(keys), mask=pc.is_null(batch.column("base")))


def _truncated(fields: pa.Schema, window: tuple[int, int]) -> pa.RecordBatch:
    values = {"_op": "t", "_from_lsn": window[0], "_lsn": window[1]}
    return pa.RecordBatch.from_pylist([values], schema=fields)


def _refuse_unheld_values(schema: TableSchema, batch: pa.RecordBatch) -> None:
    for column in schema.columns:
        held = parquet_column(column)
        if held.has_misfits(values_of(batch, image_of(column, batch.schema.names), column)):
            raise TableFailed(
                schema.name,
                NotHeld(
                    f"A value does not fit column {column.name} ({held.arrow}) in Parquet: it has no place for"
                    f" {held.unheld}.",
                    solution="Change the value, or leave the column out of the publication; then"
                    " run `penstock resync TABLE`.",
                ),
            )
