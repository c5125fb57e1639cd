"""A destination without transactions over tables: a crash between two commits leaves tables ahead of the destination.

Random logs, crashes and budgets, so that intervals are joined otherwise after a start: in the end every table holds
every change once, in order, and took on its shapes one after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

from hypothesis import example, given, settings
from hypothesis import strategies as st

from apply_spark.config import ApplyTuning
from apply_spark.destination import Batch, Destination, TableChanges
from apply_spark.destinations.plans import Plan
from apply_spark.errors import NotHeld, TableFailed
from apply_spark.intervals import Interval
from apply_spark.micro_batch import Applier, Parts
from apply_spark.progress import Progress, TableProgress
from apply_spark.reshape import Shapes
from schemas.checkpoint import Checkpoint, Moved, SchemaChanged
from schemas.identifiers import DestinationName, Epoch, LogId, PipelineName, SchemaId, TableName
from schemas.lsn import Lsn, Position
from schemas.phases import Errored, Ready
from schemas.table import TableSchema
from schemas.topics import Topics
from stores.kafka_log import Record
from tests.support.builders import INT8, a_column, a_table
from tests.support.failpoints import Crash

TABLES = tuple(TableName("public", name) for name in ("a", "b", "c"))
TOPICS = Topics(PipelineName("p"))


class Change(NamedTuple):
    """One record of a change topic."""

    commit_lsn: int
    epoch: int


@dataclass
class Log:
    """What capture wrote."""

    records: list[Record] = field(default_factory=list)
    topics: dict[str, list[Change]] = field(default_factory=lambda: defaultdict(list))
    counted: dict[TableName, list[int]] = field(default_factory=lambda: defaultdict(list))
    shapes: dict[TableName, int] = field(default_factory=lambda: defaultdict(int))

    def read(self, _topic: str, start: int, end: int) -> list[Record]:
        return self.records[start:end]

    def add(self, checkpoint: Checkpoint) -> None:
        self.records.append(Record(len(self.records), None, checkpoint.encode(), 0))


@dataclass(frozen=True)
class Step:
    """A checkpoint: rows of each table, those that change their shape, and what happens to capture before it."""

    rows: tuple[int, int, int]
    altered: frozenset[int]
    happens: str


STEPS = st.builds(
    Step,
    rows=st.tuples(*[st.integers(0, 2)] * 3),
    altered=st.frozensets(st.integers(0, 2), max_size=2),
    happens=st.sampled_from(["nothing", "nothing", "nothing", "restart", "zombie"]),
)


def written(steps: Iterable[Step]) -> Log:
    log, epoch, lsn = Log(), 1, 10
    log.add(_checkpoint(epoch, lsn, lsn, opens=True))
    for step in steps:
        if step.happens == "restart":
            epoch += 1
            log.add(_checkpoint(epoch, lsn, lsn, opens=True, ends=_ends(log)))
        if step.happens == "zombie" and epoch > 1:
            log.topics[TOPICS.changes(TABLES[0])].append(Change(lsn, epoch - 1))
            log.add(_checkpoint(epoch - 1, lsn, lsn + 10, ends=_ends(log)))
        moved, markers = [], []
        for number, table in enumerate(TABLES):
            if number in step.altered:
                log.shapes[table] += 1
                position = Position(Lsn(lsn), 0)
                markers.append(SchemaChanged(table, position, SchemaId(log.shapes[table]), rewrite=False))
            if step.rows[number]:
                topic = TOPICS.changes(table)
                lsns = [lsn + 1 + place for place in range(step.rows[number])]
                log.topics[topic] += [Change(each, epoch) for each in lsns]
                log.counted[table] += lsns
                moved.append(Moved(topic, SchemaId(log.shapes[table]), len(lsns), 1))
        log.add(
            _checkpoint(epoch, lsn, lsn + 10, moved=tuple(moved), markers=tuple(markers), ends=_ends(log) or {"": (0,)})
        )
        lsn += 10
    return log


def _ends(log: Log) -> dict[str, tuple[int, ...]]:
    return {topic: (len(changes),) for topic, changes in log.topics.items()}


def _checkpoint(epoch: int, start: int, lsn: int, **more: Any) -> Checkpoint:  # noqa: ANN401 -- fields of a checkpoint
    fields: dict[str, Any] = {"opens": False, "moved": (), "ends": {}, "markers": ()}
    return Checkpoint(
        log_id=LogId("log"), epoch=Epoch(epoch), start=Lsn(start), lsn=Lsn(lsn), commit_ts=lsn, emitted_at=lsn,
        **(fields | more),
    )  # fmt: skip


class Reader:
    """By the rules of the protocol: the window, the epoch, and what a table does not hold yet."""

    def __init__(self, log: Log) -> None:
        self._log = log

    @contextmanager
    def changes(self, interval: Interval, tables: list[TableProgress]) -> Iterator[tuple[TableChanges, ...]]:
        yield tuple(self._changes(interval, tables))

    def read_ahead(self, interval: Interval | None, tables: list[TableProgress]) -> None:
        """Everything is here already."""

    def shapes(self, interval: Interval, table: TableProgress) -> Shapes:
        ahead = table.shapes_before(interval.lsn)
        ids = [table.schema_id, *[shape.schema_id for shape in ahead]]
        return Shapes(tuple(_shape(table.table, each) for each in ids), tuple(shape.position for shape in ahead))

    def _changes(self, interval: Interval, tables: list[TableProgress]) -> Iterator[TableChanges]:
        for table in tables:
            topic = TOPICS.changes(table.table)
            if table.lsn < interval.lsn and interval.moved_on(topic):
                read = self._log.topics[topic][table.topic_offset : interval.ends[topic]]
                found = [lsn for lsn, epoch in read if interval.start <= lsn < interval.lsn and epoch == interval.epoch]
                assert len(found) == sum(moved.rows for moved in interval.moved_on(topic))
                new = [lsn for lsn in found if lsn >= table.lsn]
                shape = self.shapes(interval, table).last
                yield TableChanges(shape, truncate=False, rows=cast(Any, new), partial=False)


def _shape(table: TableName, columns: int) -> TableSchema:
    numbered = [a_column(f"c{number}", INT8, number=number) for number in range(1, columns + 2)]
    return replace(a_table(*numbered, name=table), width=columns + 1)


class Tables:
    """Rows of each table, each written by a commit of its own; it crashes, or refuses a table, after so many."""

    name = DestinationName("lake")

    def __init__(self, progress: Progress, faults: Iterator[tuple[int, bool]]) -> None:
        self._faults = faults
        self._plan = Plan(1, 1, progress)
        self._done: list[TableName] = []
        self.rows: dict[TableName, list[int]] = defaultdict(list)
        self.shapes: dict[TableName, TableSchema] = {table: _shape(table, 0) for table in TABLES}
        self.since: dict[TableName, Lsn] = dict.fromkeys(TABLES, Lsn(0))

    def startup(self) -> Progress | None:
        return self._plan.reached(self._done)

    def write_events(self, batch: Batch) -> None:
        for alteration in batch.altered:
            table = alteration.after.name
            lsn = batch.progress.tables[table].lsn
            if lsn >= self.since[table]:  # else it has a later shape, whose rows were refused or lost
                assert len(alteration.before.columns) <= len(self.shapes[table].columns)
                self.shapes[table], self.since[table] = alteration.after, lsn
        tables = tuple(changes.schema.name for changes in batch.tables)
        self._plan, self._done = Plan(1, 1, batch.progress, before=self.startup(), tables=tables), []
        for changes in batch.tables:
            commits, crashes = next(self._faults, (99, False))
            table = changes.schema.name
            if commits == len(self._done) and not crashes:
                failed = TableFailed(table, NotHeld("for once", solution="none"))
                failed.written = tuple(batch.progress.tables[each] for each in self._done)
                raise failed
            if commits == len(self._done):
                raise Crash
            assert self.shapes[table].columns[: len(changes.schema.columns)] == changes.schema.columns
            self.rows[table] += cast(list[int], changes.rows)
            self._done.append(table)

    def save_progress(self, progress: Progress) -> None:
        self._plan, self._done = Plan(1, 1, progress), []


class Silence:
    """Nobody is told how far the destination is."""

    def send(self, progress: Progress) -> None:
        pass


def beginning() -> Progress:
    tables = [
        TableProgress(
            table=table, phase=Ready(), generation=Lsn(1), schema_id=SchemaId(0), lsn=Lsn(10), epoch=Epoch(1),
            log_offset=0, topic_offset=0, last_snapshot=Lsn(1),
        )
        for table in TABLES
    ]  # fmt: skip
    return Progress(LogId("log"), Lsn(10), None, 0, 0, {table.table: table for table in tables})


def resumed(progress: Progress) -> Progress:
    """Tables that were refused go on where they were held, as a command of a user has it."""
    held = [table for table in progress.tables.values() if isinstance(table.phase, Errored)]
    return progress.with_tables(*[replace(table, phase=cast(Errored, table.phase).held) for table in held])


@settings(max_examples=150)
@given(
    st.lists(STEPS, min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=8),
    st.lists(st.integers(1, 12), min_size=1, max_size=8),
    st.integers(1, 5),
)
@example([Step((0, 0, 1), frozenset(), "nothing")], [(0, False), (0, False)], [1], 1)  # refused as it catches up, too
def test_every_change_is_written_once_whatever_tables_a_crash_left_ahead(
    steps: list[Step], faults: list[tuple[int, bool]], budgets: list[int], chunk: int
) -> None:
    log = written(steps)
    destination = Tables(beginning(), iter(faults))
    starts = 0
    while True:
        stored = resumed(cast(Progress, destination.startup()))
        tuning = ApplyTuning(interval_rows=budgets[starts % len(budgets)])
        parts = Parts(*cast(Any, (None, TOPICS, log, None, Reader(log), None, Silence())), tuning)
        applier = Applier(cast(Destination, destination), stored, parts)
        starts += 1
        try:
            for place in range(stored.log_offset, len(log.records) + 1, chunk):
                applier.take(log.records[place : place + chunk])
                applier.work(lambda: False)
        except Crash:
            continue
        assert applier.progress is not None
        destination.save_progress(applier.progress)
        if not any(isinstance(table.phase, Errored) for table in applier.progress.tables.values()):
            break

    assert {table: destination.rows[table] for table in TABLES} == {table: log.counted[table] for table in TABLES}
    assert {t: len(destination.shapes[t].columns) for t in TABLES} == {t: log.shapes[t] + 1 for t in TABLES}
    assert {table.log_offset for table in applier.progress.tables.values()} == {len(log.records)}
