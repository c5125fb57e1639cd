"""Which tables need a copy, and what became of it. Publication in, copies and markers out.

Runs as one thread beside the stream, which it never stops: the stream writes a table's changes from the first moment,
and whoever applies them leaves out what the copy already holds. A copy that was interrupted begins again as the next
generation, on a topic of its own.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Protocol

import psycopg
import structlog

from capture.checkpoints import LogPlace
from capture.config import CaptureConfig, PartialPublish
from capture.errors import source_error
from capture.owned_publication import keep_publication
from capture.publication import PublishedTable, published_tables, require_whole
from capture.replication_connection import session_dsn
from capture.table_sync.copier import Copied, FileChanged, TableJob
from capture.table_sync.copies import Copies, Round, TableCopying
from capture.table_sync.membership import why_copy, why_copy_partitions
from capture.table_sync.ranges import CopyRange, divide
from capture.table_sync.snapshot import HeldSnapshot
from capture.table_sync.worker import Failed, Report, WorkerSettings
from capture.tables import Registrar
from capture.wire import shut_down
from schemas.checkpoint import CopyFinished, CopyStarted, Marker, TableErrored, TableRemoved
from schemas.errors import Retry
from schemas.identifiers import Epoch, LogId, TableName
from schemas.lsn import NOWHERE, Lsn, Position
from schemas.phases import DataSync, Errored, FinishedCopy, Init
from stores.kafka_log import KafkaLog, TopicExists
from stores.lifecycle import TableLifecycleStore
from stores.state import CAPTURE, StateStore, TableCopy

_LOOK_SECONDS = 0.1

log = structlog.get_logger(__name__)


class SyncStore(StateStore, TableLifecycleStore, Protocol):
    """What table sync remembers with."""


@dataclass(frozen=True)
class _Waiting:
    """Tables that wait for a snapshot."""

    tables: dict[TableName, PublishedTable]
    topics: dict[TableName, str]
    place: LogPlace
    held: Future[HeldSnapshot]


@dataclass
class TableSync:
    """The scheduler of copies; its public methods are called by the stream's thread."""

    config: CaptureConfig
    log_id: LogId
    epoch: Epoch
    database: str
    place: Callable[[], LogPlace]
    store: SyncStore
    log: KafkaLog
    registrar: Registrar
    stop: threading.Event
    failure: BaseException | None = None
    _markers: queue.SimpleQueue[Marker] = field(default_factory=queue.SimpleQueue)
    _requests: queue.SimpleQueue[TableName] = field(default_factory=queue.SimpleQueue)
    _finishing: set[TableName] = field(default_factory=set)
    """Tables whose CopyFinished waits for its checkpoint."""
    _broken: dict[TableName, str] = field(default_factory=dict)
    """Tables that another try would break in the same way while they are published so; a resync tries again."""
    _removed: dict[TableName, Lsn] = field(default_factory=dict)
    """Tables that left the publication, by the generation that they left with; until a checkpoint says so."""
    _remembering: threading.Lock = field(default_factory=threading.Lock)
    """Held while a copy is read from the store and written back: two threads do that."""
    _snapshots: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="snapshot"))
    _waiting: _Waiting | None = None
    _session: psycopg.Connection | None = None

    def __post_init__(self) -> None:
        settings = WorkerSettings(
            pipeline=self.config.pipeline,
            dsn=self.config.source.dsn.get_secret_value(),
            database=self.database,
            kafka=self.config.kafka,
            memory=self.config.tuning.producer_memory,
            epoch=self.epoch,
        )
        self._copies = Copies(settings, self.config.tuning.copy_workers)

    # What the stream calls.

    def drain(self) -> list[Marker]:
        if self.failure is not None:
            raise self.failure
        found: list[Marker] = []
        while not self._markers.empty():
            found.append(self._markers.get_nowait())
        return found

    def written(self, markers: Sequence[Marker]) -> None:
        """A copy counts as finished only once its marker stands in a checkpoint."""
        for marker in markers:
            match marker:
                case CopyFinished():
                    self._remember_finished(marker)
                case TableRemoved(table=table):
                    self._forget(table)
                case _:
                    pass

    def request(self, table: TableName) -> None:
        with self._remembering:
            if table in self.store.copies():
                self.store.clear_for_copy(table)
        self._requests.put(table)

    def abandon(self) -> None:
        """Ends a wait of the thread for a server that does not answer."""
        if self._session is not None:
            shut_down(self._session)

    def _remember_finished(self, finished: CopyFinished) -> None:
        table = finished.table
        with self._remembering:
            copy = self.store.copies().get(table)
            if copy is None or copy.generation != finished.generation:
                return
            self.store.set_copy(replace(copy, finished=True, rows=finished.rows))
            self.store.set_phase(CAPTURE, table, FinishedCopy())
        log.info("table copy finished", table=str(table), row_count=finished.rows)

    def _forget(self, table: TableName) -> None:
        """Unless it came back in the meantime, and is copied again."""
        with self._remembering:
            copy = self.store.copies().get(table)
            if copy is None or copy.generation == self._removed.get(table):
                self.store.delete_table(table)
                self._removed.pop(table, None)

    # The thread.

    def run(self) -> None:
        """Looks at the publication and tends the copies until `stop`."""
        try:
            self._tend()
        except InterruptedError:
            pass
        except psycopg.Error as error:
            self.failure = source_error(error, "looking at the publication")
        except BaseException as error:  # noqa: BLE001 -- handed to the stream, which raises it in the main thread
            self.failure = error
        finally:
            self._copies.close()
            self._snapshots.shutdown()  # a snapshot that is waited for ends with `stop`
            if self._waiting is not None and self._waiting.held.exception() is None:
                self._waiting.held.result().close()

    def _tend(self) -> None:
        dsn = session_dsn(self.config.source.dsn.get_secret_value(), application_name="penstock table sync")
        with psycopg.connect(dsn, autocommit=True) as session:
            self._session = session
            next_look = 0.0
            while not self.stop.is_set():
                self._take_requests()
                if time.monotonic() >= next_look:
                    self._look_at_publication(session)
                    next_look = time.monotonic() + self.config.tuning.publication_interval.total_seconds()
                if self._waiting is not None and self._waiting.held.done():
                    self._begin_copies(session, self._waiting)
                for ended in self._copies.tend(expecting=self._waiting is not None):
                    self._conclude(ended.copy, ended.outcome)
                self._copies.wait(_LOOK_SECONDS, self.stop)

    def _take_requests(self) -> None:
        """A requested table is copied again, from the beginning, whatever its copy was doing."""
        while not self._requests.empty():
            table = self._requests.get_nowait()
            self._broken.pop(table, None)
            self._finishing.discard(table)
            self._drop(table)

    def _drop(self, table: TableName) -> None:
        self._copies.drop(table)
        if self._waiting is not None:
            self._waiting.tables.pop(table, None)

    def _look_at_publication(self, session: psycopg.Connection) -> None:
        if self.config.source.tables:
            keep_publication(session, self.config.pipeline, self.config.source)
        if self.config.source.partial_publish is PartialPublish.REFUSE:
            require_whole(session, self.config.source.publication)
        published = published_tables(session, self.config.source.publication)
        names = {table.name for table in published}
        copies = self.store.copies()
        for gone in {*copies, *self.store.phases(CAPTURE)} - names:
            self._retire(gone, copies[gone].generation if gone in copies else NOWHERE)
        if self._waiting is not None:
            return
        busy = self._copies.tables()
        wanted = [table for table in published if table.name not in busy and self._needs_copy(session, table)]
        if wanted:
            self._begin_round(sorted(wanted, key=lambda table: -table.size))

    def _retire(self, table: TableName, generation: Lsn) -> None:
        """Told once. The destination keeps the rows."""
        if self._removed.get(table) == generation:
            return
        log.info("table left the publication", table=str(table))
        self._removed[table] = generation
        self._broken.pop(table, None)
        self._finishing.discard(table)
        self._drop(table)
        self._markers.put(TableRemoved(table))

    def _needs_copy(self, session: psycopg.Connection, table: PublishedTable) -> bool:
        if self._broken.get(table.name) == table.fingerprint:
            return False
        copy = self.store.copies().get(table.name)
        why = why_copy(table, copy, self.log_id)
        if copy is not None and why is None:
            if copy.finished:
                why = why_copy_partitions(session, table, copy)
                if why is None and copy.filenode != table.filenode:
                    self._remember_files(copy, table.filenode)
            elif table.name not in self._finishing:
                why = "its last one did not come to an end"
        if why is not None:
            log.info("table needs a copy", table=str(table.name), reason=why)
        return why is not None

    def _remember_files(self, copy: TableCopy, filenode: str) -> None:
        with self._remembering:
            if self.store.copies().get(copy.table) == copy:
                self.store.set_copy(replace(copy, filenode=filenode))

    def _begin_round(self, tables: list[PublishedTable]) -> None:
        """One snapshot for all tables that wait; the log's place is taken before, so no change after it is missed.

        It waits for every open writer of the server, in a thread of its own, so that copies under way and tables that
        leave are tended meanwhile."""
        topics = self.registrar.change_topics([table.name for table in tables])
        place = self.place()
        self._copies.warm(sum(len(self._ranges(table)) for table in tables))
        log.info("taking a snapshot", tables=[str(table.name) for table in tables])
        dsn = self.config.source.dsn.get_secret_value()
        held = self._snapshots.submit(HeldSnapshot, dsn, self.config.pipeline, self.stop)
        self._waiting = _Waiting({table.name: table for table in tables}, topics, place, held)

    def _begin_copies(self, session: psycopg.Connection, waiting: _Waiting) -> None:
        """A table that changed while the snapshot was waited for is left to the next round: its copy would have a shape
        that it no longer had at the snapshot."""
        self._waiting = None
        held, topics, place = waiting.held.result(), waiting.topics, waiting.place
        now = {table.name: table for table in published_tables(session, self.config.source.publication)}
        tables = [table for table in waiting.tables.values() if _is_still(table, now.get(table.name))]
        this_round = Round(held, len(tables) + 1)
        for table in tables:
            ids = self.registrar.schema_ids(table.schema)
            try:
                topic = self.registrar.new_copy_topic(table.name, held.lsn)
            except TopicExists:
                this_round.leave()
                continue
            self.store.set_copy(
                TableCopy(
                    table=table.name,
                    log_id=self.log_id,
                    generation=held.lsn,
                    schema_id=ids[0],
                    filenode=table.filenode,
                    fingerprint=table.fingerprint,
                    finished=False,
                    rows=0,
                )
            )
            self.store.set_phase(CAPTURE, table.name, Init())
            self.store.set_phase(CAPTURE, table.name, DataSync())
            self._markers.put(
                CopyStarted(
                    table=table.name,
                    schema_id=ids[0],
                    generation=held.lsn,
                    filenode=table.filenode,
                    fingerprint=table.fingerprint,
                    changes_from=place.ends.get(topics[table.name], (0,))[0],
                    log_from=place.next_offset,
                )
            )
            self._finishing.discard(table.name)
            job = TableJob(table, ids, held.id, held.lsn, topic)
            ranges = self._ranges(table)
            self._copies.add(TableCopying(job, this_round, ranges))
            log.info("table copy started", table=str(table.name), generation=str(held.lsn), ranges=len(ranges))
        this_round.leave()

    def _ranges(self, table: PublishedTable) -> list[CopyRange]:
        return divide(table, self.config.tuning.copy_ranges_per_table, self.config.tuning.copy_range_size)

    def _conclude(self, copy: TableCopying, outcome: Report | None) -> None:
        name = copy.name
        match outcome:
            case Copied(rows=rows, bytes=size):
                self._finish(copy, rows, size)
            case FileChanged():
                log.warning("table was rewritten during its copy, copying it again", table=str(name))
            case Failed(reason=reason, solution=solution, permanent=True):
                log.error("table stopped", table=str(name), error=reason, solution=solution)
                self._broken[name] = copy.job.table.fingerprint
                self.store.set_phase(CAPTURE, name, Errored(reason, solution, Retry.MANUAL, 1, DataSync()))
                position = Position(copy.job.generation, 0)
                self._markers.put(TableErrored(name, position, reason, solution))
            case Failed(reason=reason, solution=solution):
                log.warning("table copy failed, copying it again", table=str(name), error=reason, solution=solution)
            case None:
                log.warning("table copy ended without a word, copying it again", table=str(name))

    def _finish(self, copy: TableCopying, rows: int, size: int) -> None:
        """A copy topic is new and its producers are idempotent, so it ends where its rows do, or Kafka lost some."""
        ends = self.log.ends([copy.job.topic])[copy.job.topic]
        if sum(ends) != rows:
            log.error("kafka has other rows than were sent, copying again", table=str(copy.name), row_count=rows)
            return
        self._finishing.add(copy.name)
        generation = copy.job.generation
        self._markers.put(CopyFinished(copy.name, generation, rows, size, ends, generation))


def _is_still(before: PublishedTable, now: PublishedTable | None) -> bool:
    return (
        now is not None
        and before.schema.same_shape(now.schema)
        and (before.filenode, before.fingerprint) == (now.filenode, now.fingerprint)
    )
