"""Delta Lake, written by Spark: each table a Delta table under `<path>/<schema>/<table>`.

Delta commits one table at a time. Exactly once therefore means: rows and progress of each table are one commit, and a
reader may see two tables at neighbouring intervals. How that is done:

1.  Before an interval is written, its plan is: the progress from which it leads, the one to which it leads, and the
    tables that get rows. It is a file of its own (delta_plans.py), which can be made once.
2.  Each table is one commit, and carries the number of the plan (delta_mirror.py). Delta keeps that number with the
    table for good, whatever becomes of the history of its log.
3.  The next plan, or the next start, finds which tables have the number. Those stand where the plan leads to, the
    others where it led from; so does the destination as a whole, unless all have it. After a crash apply goes on from
    there, table by table: nothing is written twice, and nothing is left out.

Who writes. A start takes the next owner, by a plan file of its own, so that nobody else can make another plan; and it
marks the tables that an unfinished plan may still write with its owner, so that a commit of the apply before it, which
may only be frozen, fails or is dropped. A commit that was dropped is noticed: that apply ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import stamina
from py4j.protocol import Py4JJavaError
from pydantic import BaseModel, Field
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from apply_spark.destination import Batch, Connector, TableChanges
from apply_spark.destinations.caseless_names import OWN_SCHEMA, refuse_unheld_names
from apply_spark.destinations.delta_merge import Ready, changed, commit, copied, origin, replace_mirror, seen
from apply_spark.destinations.delta_mirror import Mark, Mirror, Shape, field_of
from apply_spark.destinations.delta_plans import Plan, Plans
from apply_spark.destinations.delta_refusals import is_conflict, refusals
from apply_spark.errors import DestinationAway, DestinationInUse, NotHeld, TableFailed
from apply_spark.progress import Progress, TableProgress
from apply_spark.rows import Rows, SparkRows
from schemas.failpoints import failpoint
from schemas.identifiers import DestinationName, TableName
from schemas.lsn import Lsn
from schemas.settings import checked
from schemas.table import TableSchema
from schemas.topics import escaped

_ATTEMPTS = 5
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class DeltaOptions(BaseModel, frozen=True, extra="forbid"):
    """`[destinations.NAME]` with `type = "delta"`."""

    path: str = Field(
        min_length=1, description="A folder, or the address of one that Spark reaches (`s3a://...`); made if needed."
    )


class DeltaDestination:
    """One folder of Delta tables."""

    connector: ClassVar[Connector] = Connector(
        jars=("delta",),
        settings={
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "2",  # 50 are for tables of millions of files
        },
    )

    def __init__(self, name: DestinationName, options: Mapping[str, Any]) -> None:
        self.name = name
        path = checked(DeltaOptions, options, f"destinations.{name}").path
        self._root = path.rstrip("/") if _ADDRESS.match(path) else str(Path(path).absolute())
        self._spark: SparkSession
        self._plans: Plans | None = None
        self._last_file = 0
        self._owner = 0
        self._progress: Progress | None = None
        """What the mirrors hold."""

    def startup(self) -> Progress | None:
        if self._plans is not None:
            raise DestinationInUse(f"This apply has opened destination {self.name} already.")
        self._spark = SparkSession.active()
        self._spark.conf.set("spark.sql.session.timeZone", "UTC")
        with self._told():
            plans = Plans(self._spark, f"{self._root}/{OWN_SCHEMA}/{escaped(self.name)}")
            file, found = plans.newest()
            plan = found or Plan(owner=0, number=0, after=None)
            plan = replace(plan, owner=plan.owner + 1)
            plans.add(file + 1, plan)
            self._owner, self._last_file, self._plans = plan.owner, file + 1, plans
            done = [table for table in plan.tables if self._has(table, plan)]
        self._progress = plan.reached(done)
        return self._progress

    def shutdown(self) -> None:
        self._plans = None

    def drop_table_for_copy(self, schema: TableSchema, progress: Progress) -> None:
        refuse_unheld_names(schema, progress)
        mirror = self._mirror(schema.name)
        if mirror.is_there() and mirror.mark() is None:
            raise TableFailed(
                schema.name,
                NotHeld(
                    "At the place of its mirror stands a Delta table that this destination did not make.",
                    solution="Remove that table, or give the destination another path.",
                ),
            )
        shape = Shape(schema.columns, progress.tables[schema.name].lsn)
        empty = self._spark.createDataFrame([], StructType([field_of(c, shape.since) for c in shape.columns]))
        mark = self._planned(progress, schema.name)
        self._made(schema, mark, lambda mirror: replace_mirror(shape, empty, mirror, mark))
        self._progress = progress

    def write_table_rows(self, schema: TableSchema, rows: Rows, progress: Progress) -> None:
        self._shape(schema)
        with ExitStack() as stack, refusals(schema):
            self._commit([copied(schema, self._frame(stack, rows))], progress)

    def write_events(self, batch: Batch) -> None:
        for alteration in batch.altered:
            refuse_unheld_names(alteration.after, batch.progress)
        with ExitStack() as stack:
            if batch.altered:
                for changes in batch.tables:  # all that may stop a table, before any of them is altered
                    self._ready(stack, changes, changes.schema)
                for alteration in batch.altered:
                    self._alter(alteration.after, batch.progress.tables[alteration.after.name].lsn)
            ready = [self._ready(stack, changes, self._held(changes.schema)) for changes in batch.tables]
            self._commit(ready, batch.progress)

    def save_progress(self, progress: Progress) -> None:
        self._planned(progress)
        self._progress = progress

    # One plan, one commit a table.

    def _commit(self, batch: list[Ready], progress: Progress) -> None:
        mark = self._planned(progress, *[ready.schema.name for ready in batch])
        written: list[TableProgress] = []
        for ready in batch:
            try:
                self._made(ready.schema, mark, partial(commit, ready, mark))
            except TableFailed as error:
                error.written = tuple(written)
                raise
            written.append(progress.tables[ready.schema.name])
            self._progress = self._progress.with_tables(written[-1]) if self._progress is not None else None
            failpoint("delta.committed")
        self._progress = progress

    def _planned(self, progress: Progress, *tables: TableName) -> Mark:
        """What the commits of the tables are marked with. From here on they lead to this progress."""
        assert self._plans is not None  # noqa: S101 -- startup comes first
        number = self._last_file + 1
        before = self._progress if tables else None
        with self._told():
            self._plans.add(number, Plan(self._owner, number, progress, before, tables))
        self._last_file = number
        failpoint("delta.planned")
        return Mark(self._owner, number)

    def _made(self, schema: TableSchema, mark: Mark, committed: Callable[[Mirror], None]) -> None:
        """Makes one commit; again where maintenance of the table came between. Whether it was made is asked of the
        table, whatever Spark said."""
        mirror = self._mirror(schema.name)
        with refusals(schema):
            for attempt in stamina.retry_context(on=is_conflict, attempts=_ATTEMPTS):
                with attempt:
                    try:
                        committed(mirror)
                    except (Py4JJavaError, PySparkException):
                        if mirror.mark() != mark:
                            raise

    def _has(self, table: TableName, plan: Plan) -> bool:
        """Whether the commit of a table was made. If not, it cannot be made any more by whoever had the plan."""
        mirror = self._mirror(table)
        found = mirror.mark()
        if found is not None and found.plan != plan.number:
            found = mirror.fence(self._owner)
        return found is not None and found.plan == plan.number

    # What is written.

    def _ready(self, stack: ExitStack, changes: TableChanges, shape: TableSchema) -> Ready:
        rows = self._frame(stack, changes.rows)
        with refusals(changes.schema):
            return changed(changes, rows, self._mirror(changes.schema.name), shape)

    @staticmethod
    def _frame(stack: ExitStack, rows: Rows) -> DataFrame:
        """What Spark computes is computed once: it is looked at before it is written."""
        frame = rows.frame()
        if isinstance(rows, SparkRows):
            frame = frame.persist()
            stack.callback(frame.unpersist)
        return frame

    def _shape(self, schema: TableSchema) -> Shape:
        """That the mirror has. It may be a later one than this."""
        found = self._mirror(schema.name).shape()
        if found is None:
            raise TableFailed(
                schema.name,
                NotHeld(
                    "Its mirror is gone, or is a table that somebody else made.",
                    solution="Run `penstock resync TABLE`: it makes the mirror anew.",
                ),
            )
        return found

    def _alter(self, schema: TableSchema, lsn: Lsn) -> None:
        """The mirror in its new shape, in one commit, whichever it has: a crash, or an error, may have come between a
        shape and its rows, and the intervals may be other ones now. So it may have this one, or a later one, already.
        The commit leads to no new progress."""
        has, since = self._shape(schema)
        if lsn < since or [(c.number, c.name) for c in has] == [(c.number, c.name) for c in schema.columns]:
            return
        assert self._progress is not None  # noqa: S101 -- or there would be no mirror
        shape = Shape(schema.columns, lsn)
        added = [column for column in schema.columns if origin(column, replace(schema, columns=has)) is None]
        with refusals(schema):
            rewritten = (
                seen(self._mirror(schema.name), schema) if any(column.missing is not None for column in added) else None
            )
        mark = self._planned(self._progress, schema.name)
        if rewritten is not None:
            self._made(schema, mark, lambda mirror: replace_mirror(shape, rewritten, mirror, mark))
        else:
            self._made(schema, mark, lambda mirror: mirror.reshape(mark, shape))

    def _held(self, schema: TableSchema) -> TableSchema:
        """The table as its mirror has it."""
        columns = self._shape(schema).columns
        sources = [origin(column, schema) for column in columns]
        keys = [source is not None and source.key for source in sources]
        return replace(schema, columns=tuple(replace(c, key=key) for c, key in zip(columns, keys, strict=True)))

    # Where it is.

    def _mirror(self, table: TableName) -> Mirror:
        return Mirror(
            self._spark, f"{self._root}/{escaped(table.schema)}/{escaped(table.name)}", f"penstock {self.name}"
        )

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What is about the destination as a whole."""
        try:
            yield
        except (Py4JJavaError, PySparkException) as error:
            raise DestinationAway(
                f"{self._root} cannot be read or written ({type(error).__name__}).",
                solution="Check the path, that apply may write there, and that the storage is there.",
            ) from error
