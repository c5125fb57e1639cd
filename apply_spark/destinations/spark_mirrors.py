"""A destination that Spark writes and that commits one table at a time, whatever the format of its tables.

Exactly once therefore means: rows and progress of each table are one commit, and a reader may see two tables at
neighbouring intervals. How that is done:

1.  Before an interval is written, its plan is: the progress from which it leads, the one to which it leads, and the
    tables that get rows (plans.py). It can be made once.
2.  Each table is one commit, and carries the number of the plan (spark_mirror.py). The table keeps that number for
    good, whatever becomes of its history.
3.  The next plan, or the next start, finds which tables have the number. Those stand where the plan leads to, the
    others where it led from; so does the destination as a whole, unless all have it. After a crash apply goes on from
    there, table by table: nothing is written twice, and nothing is left out.

Who writes. A start takes the next owner, by a plan of its own, so that nobody else can make another plan; and it marks
the tables that an unfinished plan may still write with its owner, so that a commit of the apply before it, which may
only be frozen, fails or is dropped. A commit that was dropped is noticed: that apply ends.

A table that is copied again is a table of its own, beside its mirror, until it is Ready. The plans tell which tables
are. Then one commit gives the mirror the shape and the rows of the copy, and the copy goes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import stamina
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from apply_spark.destination import ALL_MODES, Batch, TableChanges
from apply_spark.destinations.caseless_names import refuse_unheld_names
from apply_spark.destinations.plans import Plan, Plans
from apply_spark.destinations.spark_changes import changed, copied, origin, seen
from apply_spark.destinations.spark_jvm import told
from apply_spark.destinations.spark_mirror import Mark, Mirror, Ready, Shape
from apply_spark.errors import DestinationAway, DestinationInUse, NotHeld, TableFailed
from apply_spark.progress import Progress, TableProgress
from apply_spark.rows import Rows, SparkRows
from schemas import phases
from schemas.failpoints import failpoint
from schemas.identifiers import DestinationName, TableName
from schemas.lsn import Lsn
from schemas.table import TableSchema

_ATTEMPTS = 5
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class Format(Protocol):
    """What one format of tables does otherwise than another."""

    kind: str
    """Of the destination, as configured."""
    where: str
    """The place, for people; nothing secret."""
    reserved: frozenset[str]
    """Names that no column can have."""

    def opened(self, spark: SparkSession) -> Plans: ...

    def mirror(self, table: TableName) -> Mirror:
        """After `opened`."""

    def copy(self, table: TableName) -> Mirror:
        """Where the next copy of a table is built that has a mirror."""

    def refusals(self, table: TableName) -> AbstractContextManager[None]:
        """What is refused about one table stops that table only (TableFailed)."""

    def is_conflict(self, error: Exception) -> bool:
        """Whether another commit came between, such as one of maintenance: it can be tried again."""


class SparkMirrors:
    """The Destination, given a format."""

    modes = ALL_MODES

    def __init__(self, name: DestinationName, tables: Format) -> None:
        self.name = name
        self._tables = tables
        self._plans: Plans | None = None
        self._last_place = 0
        self._owner = 0
        self._beside: frozenset[TableName] = frozenset()
        """Tables whose next copy is built beside their mirror; that copy is what is written to."""
        self._progress: Progress | None = None
        """What the mirrors hold."""

    def startup(self) -> Progress | None:
        if self._plans is not None:
            raise DestinationInUse(f"This apply has opened destination {self.name} already.")
        spark = SparkSession.active()
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        with self._told():
            plans = self._tables.opened(spark)
            place, found = plans.newest()
            plan = found or Plan(owner=0, number=0, after=None)
            plan = replace(plan, owner=plan.owner + 1)
            plans.add(place + 1, plan)
            self._owner, self._last_place, self._plans = plan.owner, place + 1, plans
            self._beside = frozenset(plan.beside)
            for table in self._beside.intersection(plan.tables):
                if self._has(self._tables.mirror(table), plan):
                    self._drop_copy(table)
            done = [table for table in plan.tables if self._has(self._target(table), plan)]
        self._progress = plan.reached(done)
        return self._progress

    def shutdown(self) -> None:
        self._plans = None

    def drop_table_for_copy(self, schema: TableSchema, progress: Progress) -> None:
        refuse_unheld_names(schema, progress, self._tables.reserved)
        self._settle(progress)
        table, mirror = progress.tables[schema.name], self._tables.mirror(schema.name)
        with self._tables.refusals(schema.name):
            foreign, is_there = mirror.is_foreign(), mirror.mark() is not None
        if foreign:
            raise TableFailed(
                schema.name,
                NotHeld(
                    f"At the place of its mirror stands a table of {self._tables.kind} that this destination did not"
                    " make.",
                    solution="Remove that table, or give the destination another place.",
                ),
            )
        if is_there and not isinstance(table.phase, phases.Ready):
            self._beside |= {schema.name}
        shape, mark = Shape(schema.columns, table.lsn), self._planned(progress, schema.name)
        self._made(schema.name, self._target(schema.name), mark, lambda made: made.make(shape, mark))
        self._progress = progress

    def write_table_rows(self, schema: TableSchema, rows: Rows, progress: Progress) -> None:
        self._settle(progress)
        self._shape(schema.name)
        with ExitStack() as stack, self._tables.refusals(schema.name):
            self._commit([copied(schema, self._frame(stack, rows))], progress)

    def write_events(self, batch: Batch) -> None:
        for alteration in batch.altered:
            refuse_unheld_names(alteration.after, batch.progress, self._tables.reserved)
        self._settle(batch.progress)
        with ExitStack() as stack:
            if batch.altered:
                for changes in batch.tables:  # all that may stop a table, before any of them is altered
                    self._ready(stack, changes, changes.schema)
                for alteration in batch.altered:
                    self._alter(alteration.after, batch.progress.tables[alteration.after.name].lsn)
            ready = [self._ready(stack, changes, self._held(changes.schema)) for changes in batch.tables]
            self._commit(ready, batch.progress)

    def save_progress(self, progress: Progress) -> None:
        self._settle(progress)
        self._planned(progress)
        self._progress = progress

    # The next copy of a table.

    def _settle(self, progress: Progress) -> None:
        """Copies whose tables are to be ready take the place of their mirrors; those of tables that are gone go."""
        for table in sorted(self._beside):
            known = progress.tables.get(table)
            if known is None or isinstance(known.phase, phases.Ready):
                if known is not None:
                    self._replace(table)
                with self._tables.refusals(table):
                    self._drop_copy(table)

    def _replace(self, table: TableName) -> None:
        """The mirror gets the shape and the rows of the copy, in one commit, which leads to no new progress. A start
        that finds it made takes the copy away."""
        shape, mirror, copy = self._shape(table), self._tables.mirror(table), self._tables.copy(table)
        mark = self._planned(self._reached, table)
        self._made(table, mirror, mark, lambda made: made.rewrite(shape, copy.frame, mark))

    def _drop_copy(self, table: TableName) -> None:
        """From the next plan on it is not named any more."""
        self._tables.copy(table).remove()
        self._beside -= {table}

    @property
    def _reached(self) -> Progress:
        assert self._progress is not None  # noqa: S101 -- or there would be no mirror
        return self._progress

    def _target(self, table: TableName) -> Mirror:
        """What is written to."""
        return self._tables.copy(table) if table in self._beside else self._tables.mirror(table)

    # One plan, one commit a table.

    def _commit(self, batch: list[Ready], progress: Progress) -> None:
        mark = self._planned(progress, *[ready.schema.name for ready in batch])
        written: list[TableProgress] = []
        for ready in batch:
            try:
                self._made(ready.schema.name, self._target(ready.schema.name), mark, _writing(ready, mark))
            except TableFailed as error:
                error.written = tuple(written)
                raise
            written.append(progress.tables[ready.schema.name])
            self._progress = self._progress.with_tables(written[-1]) if self._progress is not None else None
            with self._told():
                failpoint(f"{self._tables.kind}.committed", PySparkException)
        self._progress = progress

    def _planned(self, progress: Progress, *tables: TableName) -> Mark:
        """What the commits of the tables are marked with. From here on they lead to this progress."""
        assert self._plans is not None  # noqa: S101 -- startup comes first
        number = self._last_place + 1
        before = self._progress if tables else None
        with self._told():
            failpoint(f"{self._tables.kind}.planning", PySparkException)
            self._plans.add(number, Plan(self._owner, number, progress, before, tables, tuple(self._beside)))
            failpoint(f"{self._tables.kind}.planned", PySparkException)
        self._last_place = number
        return Mark(self._owner, number)

    def _made(self, table: TableName, mirror: Mirror, mark: Mark, committed: Callable[[Mirror], None]) -> None:
        """Makes one commit; again where maintenance of the table came between. Whether it was made is asked of the
        table, whatever Spark said."""
        with self._tables.refusals(table):
            for attempt in stamina.retry_context(on=self._tables.is_conflict, attempts=_ATTEMPTS):
                with attempt:
                    try:
                        failpoint(f"{self._tables.kind}.committing", PySparkException)
                        committed(mirror)
                        failpoint(f"{self._tables.kind}.made", PySparkException)
                    except (Py4JJavaError, PySparkException):
                        if mirror.mark() != mark:
                            raise

    def _has(self, mirror: Mirror, plan: Plan) -> bool:
        """Whether the commit of a table was made. If not, it cannot be made any more by whoever had the plan."""
        found = mirror.mark()
        if found is not None and found.plan != plan.number:
            found = mirror.fence(self._owner)
        return found is not None and found.plan == plan.number

    # What is written.

    def _ready(self, stack: ExitStack, changes: TableChanges, shape: TableSchema) -> Ready:
        rows = self._frame(stack, changes.rows)
        with self._tables.refusals(changes.schema.name):
            return changed(changes, rows, self._target(changes.schema.name), shape)

    @staticmethod
    def _frame(stack: ExitStack, rows: Rows) -> DataFrame:
        """What Spark computes is computed once: it is looked at before it is written."""
        frame = rows.frame()
        if isinstance(rows, SparkRows):
            frame = frame.persist()
            stack.callback(frame.unpersist)
        return frame

    def _shape(self, table: TableName) -> Shape:
        """That the mirror has. It may be a later one than the batch has."""
        with self._tables.refusals(table):
            found = self._target(table).shape()
        if found is None:
            raise TableFailed(
                table,
                NotHeld(
                    "Its mirror is gone, or is a table that somebody else made or rolled back.",
                    solution="Run `penstock resync TABLE`: it makes the mirror anew.",
                ),
            )
        return found

    def _alter(self, schema: TableSchema, lsn: Lsn) -> None:
        """The mirror in its new shape, in one commit, whichever it has: a crash, or an error, may have come between a
        shape and its rows, and the intervals may be other ones now. So it may have this one, or a later one, already.
        The commit leads to no new progress."""
        has, since = self._shape(schema.name)
        if lsn < since or [(c.number, c.name) for c in has] == [(c.number, c.name) for c in schema.columns]:
            return
        mirror, shape = self._target(schema.name), Shape(schema.columns, lsn)
        added = [column for column in schema.columns if origin(column, replace(schema, columns=has)) is None]
        rewritten = any(column.missing is not None for column in added)
        if rewritten:
            with self._tables.refusals(schema.name):
                seen(mirror, schema)  # what may stop the table, before the plan
        mark = self._planned(self._reached, schema.name)
        if rewritten:
            self._made(schema.name, mirror, mark, lambda made: made.rewrite(shape, lambda: seen(made, schema), mark))
        else:
            self._made(schema.name, mirror, mark, lambda made: made.reshape(shape, mark))

    def _held(self, schema: TableSchema) -> TableSchema:
        """The table as its mirror has it."""
        columns = self._shape(schema.name).columns
        sources = [origin(column, schema) for column in columns]
        keys = [source is not None and source.key for source in sources]
        return replace(schema, columns=tuple(replace(c, key=key) for c, key in zip(columns, keys, strict=True)))

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What is about the destination as a whole. What Java says may hold a password."""
        try:
            yield
        except (Py4JJavaError, PySparkException) as error:
            raise DestinationAway(
                f"{self._tables.where} cannot be read or written ({told(error)}).",
                solution="Check that it is there, and that apply may read and write it; then start apply again.",
            ) from None


def _writing(ready: Ready, mark: Mark) -> Callable[[Mirror], None]:
    return lambda mirror: mirror.write(ready, mark)


def absolute(path: str) -> str:
    """An address as it is; the path of a folder from the root on."""
    return path.rstrip("/") if _ADDRESS.match(path) else str(Path(path).absolute())
