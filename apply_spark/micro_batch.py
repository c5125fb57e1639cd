"""From checkpoint records to rows at the destination and feedback, top to bottom.

    take(records)     the epoch rule, intervals, and for each: markers, read, fold, write with progress, feedback
    work()            tables that are not level with the others: one piece of a copy, or one interval of a catch-up
    obey(command)     what an operator asks of a table

A table that fails is marked, in a transaction of its own, and the rest goes on without it. Where time may heal the
error, the table is tried again in `work()`, later each time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest

import pyarrow as pa
import structlog
from pyspark.sql import SparkSession

from apply_spark.commands import CommandRefused, commanded
from apply_spark.config import ApplyTuning
from apply_spark.copies import CopyReader, upserts
from apply_spark.destination import Alteration, Batch, Destination
from apply_spark.errors import AnotherShape, ChangesMissing, DestinationAway, RowsMissing, TableFailed
from apply_spark.feedback import FeedbackSender, NoFeedback
from apply_spark.intervals import Budget, Interval, accepted, advanced, cut, intervals, is_gap
from apply_spark.markers import marked
from apply_spark.metrics import (
    APPLIED_LSN,
    APPLIED_ROWS,
    COPIED_ROWS,
    ERRORED_TABLES,
    INTERVAL_SECONDS,
    LAG_SECONDS,
    RETRIES,
)
from apply_spark.new_shapes import ignored, pinned, require_allowed, require_hidden, shape_of_mirror
from apply_spark.progress import Progress, TableProgress
from apply_spark.reader import IntervalReader
from apply_spark.reshape import copied_as
from apply_spark.retries import held, is_due
from apply_spark.rows import ArrowRows
from apply_spark.showing import EVERYTHING, Showing
from schemas.control import ApplyCommand
from schemas.epochs import EpochRule
from schemas.errors import PenstockError
from schemas.evolution import changes as changes_between
from schemas.evolution import reached
from schemas.failpoints import failpoint
from schemas.identifiers import SchemaId, TableName
from schemas.lsn import Lsn
from schemas.phases import Catchup, DataSync, Errored, FinishedCopy, Init, SyncDone, SyncWait
from schemas.table import TableSchema
from schemas.topics import Topics
from stores.kafka_log import KafkaLog, Record
from stores.schema_topic import SchemaTopic, UnknownSchema

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Parts:
    """What an Applier works with."""

    spark: SparkSession
    topics: Topics
    log: KafkaLog
    schemas: SchemaTopic
    reader: IntervalReader
    copies: CopyReader
    feedback: FeedbackSender | NoFeedback
    tuning: ApplyTuning
    showing: Showing = EVERYTHING
    clock: Callable[[], int] = lambda: time.time_ns() // 1000
    """Microseconds since 1970."""

    def shape(self, schema_id: SchemaId) -> TableSchema:
        schema = self.schemas.get(schema_id).table
        assert schema is not None  # noqa: S101 -- a value schema is registered with its table
        return schema


class Applier:
    """Moves one destination forward. `progress` is what it holds; what is stored may lag behind by empty intervals."""

    def __init__(self, destination: Destination, stored: Progress | None, parts: Parts, control: int = 0) -> None:
        """`control` is the first command to do, where none is stored."""
        self._destination = destination
        self._parts = parts
        self._budget = Budget(parts.tuning.interval_rows, int(parts.tuning.interval_bytes))
        self._saved_at = time.monotonic()
        self._rule = EpochRule(stored.epoch if stored else None)
        self._control = control
        self.progress = replace(stored, control=control) if stored is not None else None

    def take(self, records: Iterable[Record]) -> None:
        """Applies new checkpoint records. Records that were taken before are passed over."""
        new = [record for record in records if self.progress is None or record.offset >= self.progress.log_offset]
        found = list(intervals(accepted(new, self._rule), self._budget))
        for interval, following in zip_longest(found, found[1:]):
            self._apply(interval, following)
        if new and self.progress is not None:
            self.progress = self.progress.passed_over(new[-1].offset + 1)

    def take_until(self, record: Record, lsn: Lsn) -> None:
        """Applies what lies before `lsn`, a bound inside the window of that record, the next one. All tables are there
        at once, in one transaction; the destination stands before the record still."""
        for interval in intervals(accepted([record], self._rule), self._budget):
            self._apply(cut(interval, lsn))

    def _apply(self, interval: Interval, following: Interval | None = None) -> None:
        started = time.monotonic()
        showing, before = self._parts.showing, self.progress
        interval = replace(interval, markers=tuple(m for m in interval.markers if showing.selects(m.table)))
        if before is None or before.log_id != interval.log_id:
            if before is not None:
                log.warning("topics were recreated, waiting for new copies", log_id=interval.log_id)
            before = replace(Progress.fresh(interval.log_id), control=self._control, showing=showing.told)
        level = {name for name, table in before.tables.items() if table.log_offset == before.log_offset}
        here = marked(before, interval, level)
        moving = [pinned(showing, table) for name, table in here.tables.items() if name in level and table.moves]
        for table in [table for table in moving if is_gap(table, interval)]:
            here = self._held(here, table.table, ChangesMissing(table, interval.start))
            moving.remove(table)
        self._write_interval(here, interval, moving, following)
        INTERVAL_SECONDS.observe(time.monotonic() - started)
        LAG_SECONDS.set(max(0.0, time.time() - interval.emitted_at / 1e6))

    def _write_interval(
        self, here: Progress, interval: Interval, moving: list[TableProgress], following: Interval | None
    ) -> None:
        """Writes all moving tables in one transaction; again without a table that fails."""
        while True:
            after = self._after(here, interval, moving)
            try:
                altered = self._altered(interval, moving)
                with _told_where(interval), self._parts.reader.changes(interval, moving) as changes:
                    self._parts.reader.read_ahead(following, [after.tables[table.table] for table in moving])
                    if changes or altered:
                        self._destination.write_events(Batch(changes, after, altered))
                        failpoint("apply.committed", DestinationAway)
                        self._saved_at = time.monotonic()
                    else:
                        self._save_if_due(after)
            except TableFailed as error:
                here = self._held(here.with_tables(*error.written), error.table, error)
                done = {error.table, *(table.table for table in error.written)}
                moving = [table for table in moving if table.table not in done]
                continue
            self._reached(after)
            APPLIED_ROWS.labels(self._destination.name).inc(interval.rows)
            return

    def _altered(self, interval: Interval, tables: list[TableProgress]) -> tuple[Alteration, ...]:
        """What the destination does to the tables that take on another shape in the interval, and are to show it."""
        showing, altered = self._parts.showing, []
        for table in tables:
            found = self._parts.reader.shapes(interval, table)
            if len(found.shapes) > 1:
                require_allowed(showing, found.kept or found.shapes[0], found.shapes[-1])
                if not ignored(showing, table.table):
                    altered.append(_alteration(found.shapes))
        return tuple(altered)

    def _after(self, here: Progress, interval: Interval, moving: list[TableProgress]) -> Progress:
        moved = [advanced(table, interval, self._parts.topics.changes(table.table)) for table in moving]
        return replace(
            here.with_tables(*moved),
            lsn=max(here.lsn, interval.lsn),
            epoch=interval.epoch,
            log_offset=interval.next_offset,
            commit_ts=interval.commit_ts,
        ).levelled()

    def _save_if_due(self, after: Progress) -> None:
        """An interval without rows is stored with the next that has some, or after a while, or if a phase changed."""
        changed = self.progress is None or _phases(after) != _phases(self.progress)
        if changed or time.monotonic() - self._saved_at >= self._parts.tuning.progress_interval.total_seconds():
            self._save(after)

    def _save(self, progress: Progress) -> None:
        failpoint("apply.progress_saving", DestinationAway)
        self._destination.save_progress(progress)
        failpoint("apply.progress_saved", DestinationAway)
        self._saved_at = time.monotonic()

    def _reached(self, progress: Progress) -> None:
        self.progress = progress
        self._parts.feedback.send(progress)
        errored = sum(isinstance(table.shown, Errored) for table in progress.tables.values())
        ERRORED_TABLES.labels(self._destination.name).set(errored)
        APPLIED_LSN.labels(self._destination.name).set(progress.lsn)

    def _held(self, here: Progress, table: TableName, error: PenstockError) -> Progress:
        """The table stays where it is, with the reason; the others go on."""
        phase = held(here.tables[table], error, self._parts.clock(), self._parts.tuning)
        log.error(
            "table stopped",
            table=str(table),
            error=error.reason,
            solution=error.solution,
            retry=error.retry.value,
            attempt=phase.attempt,
        )
        return here.errored(table, phase)

    def obey(self, offset: int, command: ApplyCommand | None) -> None:
        """Does the command at this place of the control topic, if it was not done before; None: it is for others."""
        if offset < self._control:
            return
        self._control = offset + 1
        if self.progress is None:
            if command is not None:
                log.warning("command refused", table=str(command.table), error="No table is known here yet.")
            return
        after = replace(self.progress, control=self._control)
        if command is None:
            self.progress = after
            return
        failpoint("apply.command_obeying", DestinationAway)
        try:
            after = commanded(after, command)
        except CommandRefused as refused:
            log.warning("command refused", table=str(command.table), error=refused.reason, solution=refused.solution)
        try:
            self._save(after)
        except TableFailed as error:  # its new copy cannot take its place
            after = self._held(after, error.table, error)
            self._save(after)
        failpoint("apply.command_obeyed", DestinationAway)
        self._reached(after)

    # Tables that are not level with the destination.

    def work(self, interrupted: Callable[[], bool]) -> None:
        """Copies and catch-ups: one piece in any case, so that no load starves them; more until `interrupted`."""
        while self.progress is not None:
            progress = self.progress = self._tried_again(self.progress)
            piece = self._next_piece(progress)
            if piece is None:
                return
            try:
                piece()
            except TableFailed as error:
                stopped = self._held(progress.with_tables(*error.written), error.table, error)
                self._save(stopped)
                self._reached(stopped)
            if interrupted():
                return

    def _tried_again(self, progress: Progress) -> Progress:
        """Releases the tables that are due. It is stored once they have moved or failed: a crash before costs a try."""
        now, tuning = self._parts.clock(), self._parts.tuning
        due = [table for table in progress.tables.values() if is_due(table, now, tuning)]
        for table in due:
            log.info("table is tried again", table=str(table.table), attempt=table.attempts)
            RETRIES.labels(self._destination.name).inc()
        return progress.with_tables(*[table.released() for table in due]).levelled() if due else progress

    def _next_piece(self, progress: Progress) -> Callable[[], None] | None:
        """Small copies first; then the tables that are furthest behind, together; large copies piece by piece."""
        tables = [table for table in progress.tables.values() if not table.paused]
        copying = [t for t in tables if isinstance(t.phase, Init | DataSync) and t.copy_end is not None]
        for table in copying:
            if table.copy_rows <= self._piece(table):
                return partial(self._copy_some, progress, table)
        behind = [
            t for t in tables if isinstance(t.phase, FinishedCopy) or (t.moves and t.log_offset < progress.log_offset)
        ]
        if behind:
            last = min(behind, key=lambda table: table.log_offset)
            together = [t for t in behind if (t.log_offset, t.epoch) == (last.log_offset, last.epoch)]
            return partial(self._catch_up_some, progress, together)
        return partial(self._copy_some, progress, copying[0]) if copying else None

    def _begun(self, table: TableProgress) -> TableProgress:
        """At the beginning of its copy, if its mirror may have the shape of that."""
        showing = self._parts.showing
        try:
            schema = self._parts.shape(table.schema_id)
        except UnknownSchema as error:
            raise TableFailed(table.table, error) from error
        require_hidden(showing, self._parts.schemas.shapes_of(schema.id), schema)
        if table.mirrored is not None:
            require_allowed(showing, self._parts.shape(table.mirrored), schema)
        kept = shape_of_mirror(table) if ignored(showing, table.table) else None
        return replace(table, phase=DataSync(), copy_offset=0, copied=0, mirrored=kept)

    def _copy_some(self, progress: Progress, table: TableProgress) -> None:
        """The next rows of the copy topic. All of them are there: capture said so."""
        if isinstance(table.phase, Init):
            table = self._begun(table)
            progress = progress.with_tables(table)
            self._destination.drop_table_for_copy(self._parts.shape(shape_of_mirror(table)), progress)
            failpoint("apply.copy_begun", DestinationAway)
            self._reached(progress)
        if table.copy_offset == table.copy_end:
            after = self._copied(progress, table, table.copy_offset, table.copied)
            self._save(after)
        else:
            with self._parts.copies.piece(table, self._piece(table)) as (rows, end):
                after = self._copied(progress, table, end, table.copied + rows.num_rows)
                self._write_copied(table, rows, after)
                failpoint("apply.copy_written", DestinationAway)
                COPIED_ROWS.labels(self._destination.name).inc(rows.num_rows)
        self._reached(after)

    def _write_copied(self, table: TableProgress, rows: pa.Table, after: Progress) -> None:
        schema, spark = self._parts.shape(shape_of_mirror(table)), self._parts.spark
        rows = copied_as(rows, self._parts.shape(table.schema_id), schema)
        if table.repeats:
            self._destination.write_events(Batch((upserts(spark, rows, schema),), after))
        else:
            self._destination.write_table_rows(schema, ArrowRows(spark, rows), after)

    def _piece(self, table: TableProgress) -> int:
        """How many rows of a copy are within the budget, by its average row."""
        if table.copy_bytes <= self._budget.bytes:
            return self._budget.rows
        return max(1, min(self._budget.rows, self._budget.bytes * table.copy_rows // table.copy_bytes))

    def _copied(self, progress: Progress, table: TableProgress, end: int, copied: int) -> Progress:
        now = replace(table, copy_offset=end, copied=copied, attempts=0)
        if end == table.copy_end:
            if copied != table.copy_rows:
                raise TableFailed(
                    table.table,
                    RowsMissing(f"Its copy topic has {copied} rows where capture counted {table.copy_rows}."),
                )
            now = replace(now, phase=FinishedCopy())
            log.info("copy applied", table=str(table.table), row_count=copied, destination=self._destination.name)
        return progress.with_tables(now)

    def _catch_up_some(self, progress: Progress, tables: list[TableProgress]) -> None:
        """One interval between the place of these tables in the log, which is the same, and the destination's."""
        with closing(self._missed(progress, tables[0])) as missed:  # before others read with the same consumer
            interval, following = next(missed, None), next(missed, None)
        if interval is None:
            done = [replace(table, phase=SyncDone(table.lsn), log_offset=progress.log_offset) for table in tables]
            after = progress.with_tables(*done).levelled()
            self._save(after)
            self._reached(after)
            return
        for table in tables:
            if is_gap(table, interval):
                raise TableFailed(table.table, ChangesMissing(table, interval.start))
        self._show(progress.with_tables(*[replace(table, phase=SyncWait()) for table in tables]))
        self._show(progress.with_tables(*[replace(table, phase=Catchup(interval.lsn)) for table in tables]))
        tables = [pinned(self._parts.showing, table) for table in tables]
        now = [advanced(table, interval, self._parts.topics.changes(table.table)) for table in tables]
        if interval.next_offset == progress.log_offset:
            now = [replace(table, phase=SyncDone(table.lsn)) for table in now]
        after = progress.with_tables(*now).levelled()
        altered = self._altered(interval, tables)
        with _told_where(interval), self._parts.reader.changes(interval, tables) as changes:
            self._parts.reader.read_ahead(following, now)
            if changes or altered:
                self._destination.write_events(Batch(changes, after, altered))
                failpoint("apply.catch_up_written", DestinationAway)
            else:
                self._save(after)
        self._reached(after)

    def _missed(self, progress: Progress, table: TableProgress) -> Generator[Interval, None, None]:
        """Markers were taken in when they came, so they do not divide these intervals."""
        records = self._parts.log.read(self._parts.topics.checkpoints, table.log_offset, progress.log_offset)
        checkpoints = accepted(records, EpochRule(table.epoch))
        return intervals(((offset, replace(each, markers=())) for offset, each in checkpoints), self._budget)

    def _show(self, progress: Progress) -> None:
        """Phases that are not stored: only told."""
        self._parts.feedback.send(progress)


@contextmanager
def _told_where(interval: Interval) -> Iterator[None]:
    """Whoever is to skip a change has to find it."""
    try:
        yield
    except TableFailed as error:
        error.reason += f" In the transactions from {interval.start} to before {interval.lsn}."
        raise


def _alteration(shapes: tuple[TableSchema, ...]) -> Alteration:
    before, after = shapes[0], reached(shapes)
    made = changes_between(before, after)
    if made is None:
        raise TableFailed(before.name, AnotherShape("The log does not tell how it came to its shape."))
    log.info("table altered", table=str(before.name), changes=len(made))
    return Alteration(before, after, tuple(made))


def _phases(progress: Progress) -> dict[TableName, tuple[object, ...]]:
    return {name: (table.phase, table.generation, table.copy_end) for name, table in progress.tables.items()}
