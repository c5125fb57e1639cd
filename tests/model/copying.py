"""What stands below the real TableSync: snapshots, workers that COPY one range at a time, and the names of topics."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from capture.table_sync.copier import Copied, FileChanged
from capture.table_sync.copies import TableCopying
from capture.table_sync.sync import TableSync
from schemas.envelope import Op
from schemas.identifiers import Epoch, SchemaId, TableName
from schemas.lsn import Lsn
from schemas.table import TableSchema
from tests.model.broker import Broker, Change
from tests.model.source import Snapshot, Source
from tests.model.streamed import TOPICS


class Registrar:
    """Topics by their names; the id of a table is that of its one schema."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def change_topics(self, tables: Sequence[TableName]) -> None:
        self._broker.ensure_all(TOPICS.changes(table) for table in tables)

    def new_copy_topic(self, table: TableName, generation: Lsn) -> str:
        topic = TOPICS.copy(table, generation)
        self._broker.create(topic)
        return topic

    def schema_ids(self, schema: TableSchema) -> tuple[SchemaId, None]:
        return SchemaId(schema.id), None


class Snapshots:
    """Stands for the thread that waits for a snapshot; the explorer says when it is there."""

    def __init__(self) -> None:
        self.asked: Future[Snapshot] | None = None

    def submit(self, *_what: object) -> Future[Snapshot]:
        self.asked = Future()
        return self.asked


class Checks:
    """What the model itself does by the rules, so that a test can have it done wrong."""

    compare_files = True
    hear_all_first = True


class Workers:
    """Stands for `Copies` and its processes: one range at a time."""

    def __init__(self, source: Source, broker: Broker, epoch: Epoch) -> None:
        self._source = source
        self._broker = broker
        self._epoch = epoch
        self.under_way: list[TableCopying] = []

    def tables(self) -> set[TableName]:
        return {copy.name for copy in self.under_way}

    def warm(self, _ranges: int) -> None:
        """They start at once."""

    def add(self, copy: TableCopying) -> None:
        self.under_way.append(copy)

    def drop(self, table: TableName) -> None:
        self.under_way = [copy for copy in self.under_way if copy.name != table]

    def range(self, sync: TableSync, copy: TableCopying) -> None:
        """The next range, from its lock to its last record, and what table sync makes of that."""
        part, rows = copy.waiting[0], self._rows(copy)
        if rows is None:
            self.under_way.remove(copy)
            sync._conclude(copy, FileChanged())
            return
        self._write(copy, rows)
        copy.waiting.pop(0)
        copy.done[part] = Copied(len(rows), len(rows), final=True)
        sync._remember_range(copy, part, copy.done[part])
        if not copy.waiting:
            self.under_way.remove(copy)
            sync._conclude(copy, Copied(copy.rows, copy.bytes, final=True))

    def die(self, sync: TableSync, copy: TableCopying) -> None:
        """A worker that wrote half of its range, and is gone."""
        rows = self._rows(copy) or []
        self._write(copy, rows[:1])
        self.under_way.remove(copy)
        sync._conclude(copy, None)

    def _rows(self, copy: TableCopying) -> list[tuple[Any, ...]] | None:
        """None: the table has another file."""
        part, snapshot = copy.waiting[0], copy.round.snapshot
        now = next((table for table in self._source.published() if table.name == copy.name), None)
        if Checks.compare_files and now is not None and now.filenode != copy.job.table.filenode:
            return None
        return self._source.copied(snapshot, copy.name, part.first, part.end)  # type: ignore[arg-type, return-value]

    def _write(self, copy: TableCopying, rows: Sequence[tuple[Any, ...]]) -> None:
        for ordinal, row in enumerate(rows):
            change = Change(copy.job.snapshot_lsn, ordinal, self._epoch, Op.READ.value, None, row)
            self._broker.append(copy.job.topic, change)
