"""Which tables need a copy, and what became of it. Publication in, copies and markers out.

Runs as one thread beside the stream, which it never stops: the stream writes a table's changes from the first moment,
and whoever applies them leaves out what the copy already holds. A copy that was interrupted goes on with the ranges
that Kafka does not have, where that is exact (resume.py); else it begins again as the next generation, on a topic of
its own.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import psycopg
import structlog

from capture.checkpoints import LogPlace
from capture.config import CaptureConfig, CopyMode, PartialPublish
from capture.errors import source_error
from capture.owned_publication import keep_publication
from capture.publication import PublishedTable, published_tables, require_whole
from capture.registrar import Registrar
from capture.sessions import plain_session
from capture.slot_wal import wal_end
from capture.table_sync.beginnings import Beginnings
from capture.table_sync.copier import Copied, FileChanged
from capture.table_sync.copies import Copies, Round, TableCopying, Whole
from capture.table_sync.membership import why_copy, why_copy_partitions
from capture.table_sync.memory import CopyMemory, SyncStore
from capture.table_sync.nursery import Nursery
from capture.table_sync.ranges import CopyRange
from capture.table_sync.resume import Interrupted, remembered
from capture.table_sync.snapshot import HeldSnapshot
from capture.table_sync.worker import Failed, Report, WorkerSettings
from capture.wire import shut_down
from schemas.checkpoint import CopyFinished, CopyStarted, Marker, TableErrored, TableRemoved
from schemas.errors import Retry
from schemas.failpoints import failpoint
from schemas.identifiers import Epoch, LogId, TableName, slot_name
from schemas.lsn import NOWHERE, Lsn, Position
from schemas.phases import DataSync, Errored
from schemas.topics import Topics
from stores.errors import StoreUnreachable
from stores.kafka_errors import BrokerUnreachable
from stores.kafka_log import KafkaLog
from stores.state import FinishedRange

_LOOK_SECONDS = 0.1

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Waiting:
    """Tables that wait for a snapshot."""

    tables: dict[TableName, PublishedTable]
    place: LogPlace
    held: Future[HeldSnapshot]


@dataclass
class TableSync:
    """The scheduler of copies; its public methods are called by the stream's thread."""

    config: CaptureConfig
    nursery: Nursery
    log_id: LogId
    epoch: Epoch
    database: str
    place: Callable[[], LogPlace]
    store: SyncStore
    log: KafkaLog
    registrar: Registrar
    stop: threading.Event
    reached: Callable[[], Lsn]
    """The last checkpoint."""
    complete: bool = False
    """Every table is copied, and capture was to do no more."""
    failure: BaseException | None = None
    _markers: queue.SimpleQueue[Marker] = field(default_factory=queue.SimpleQueue)
    _requests: queue.SimpleQueue[TableName] = field(default_factory=queue.SimpleQueue)
    _finishing: set[TableName] = field(default_factory=set)
    """Tables whose CopyFinished waits for its checkpoint."""
    _broken: dict[TableName, str] = field(default_factory=dict)
    """Tables that another try would break in the same way while they are published so; a resync tries again."""
    _removed: dict[TableName, Lsn] = field(default_factory=dict)
    """Tables that left the publication, by the generation that they left with; until a checkpoint says so."""
    _snapshots: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="snapshot"))
    _waiting: _Waiting | None = None
    _session: psycopg.Connection | None = None
    _backfilled: Lsn | None = None
    """Where the WAL ended when every table was copied."""

    def __post_init__(self) -> None:
        tuning = self.config.tuning
        settings = WorkerSettings(
            pipeline=self.config.pipeline,
            source=self.config.source,
            database=self.database,
            kafka=self.config.kafka,
            memory=tuning.producer_memory,
            epoch=self.epoch,
            bytes_per_second=tuning.copy_max_rate / tuning.copy_workers if tuning.copy_max_rate else None,
        )
        self._copies = Copies(self.nursery, settings, tuning.copy_workers, self._remember_range)
        self._memory = CopyMemory(self.store)
        self._topics = Topics(self.config.pipeline)
        self._beginnings = Beginnings(self.config, self.log_id, self.log, self.registrar, self._memory)

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
                case CopyStarted():
                    failpoint("copy.start_written", StoreUnreachable)
                    self._memory.announced(marker)
                    failpoint("copy.announced", StoreUnreachable)
                case CopyFinished(table=table, rows=rows, bytes=size):
                    failpoint("copy.finish_written", StoreUnreachable)
                    if self._memory.finished(marker):
                        log.info("table copy finished", table=str(table), row_count=rows, byte_count=size)
                    failpoint("copy.finished", StoreUnreachable)
                case TableRemoved(table=table):
                    if self._memory.forget(table, self._removed.get(table)):
                        self._removed.pop(table, None)
                case _:
                    pass

    def request(self, table: TableName) -> None:
        self._memory.clear(table)
        self._requests.put(table)

    def abandon(self) -> None:
        """Ends a wait of the thread for a server that does not answer."""
        if self._session is not None:
            shut_down(self._session)

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
        with plain_session(self.config.source, application_name="penstock table sync") as session:
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
            self._memory.clear(table)  # also what was begun since it was requested

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
        copies = self._memory.copies()
        for gone in self._memory.tables() - names:
            self._retire(gone, copies[gone].generation if gone in copies else NOWHERE)
        if self._waiting is not None:
            return
        busy = self._copies.tables()
        wanted = [table for table in published if table.name not in busy and self._needs_copy(session, table)]
        if wanted:
            self._begin_round(sorted(wanted, key=lambda table: -table.size))
        elif self.config.copies.mode is CopyMode.COPY_ONLY:
            self._end_when_all_is_copied(session, names)

    def _end_when_all_is_copied(self, session: psycopg.Connection, tables: set[TableName]) -> None:
        """Once the log has reached a moment after the last snapshot, so that every table can become Ready."""
        copies = self._memory.copies()
        if not all(name in copies and copies[name].finished for name in tables):
            return
        if self._backfilled is None:
            self._backfilled = wal_end(session)
        if self.reached() >= self._backfilled:
            slot = slot_name(self.config.pipeline)
            solution = f"Drop it when the pipeline is no longer needed: select pg_drop_replication_slot('{slot}');"
            log.warning("every table is copied, ending; the slot stays and holds WAL", slot=slot, solution=solution)
            self.complete = True

    def _retire(self, table: TableName, generation: Lsn) -> None:
        """Told once. The destination keeps the rows."""
        if self._removed.get(table) == generation:
            return
        log.info("table left the publication", table=str(table))
        self._removed[table] = generation
        self._broken.pop(table, None)
        self._finishing.discard(table)
        self._drop(table)
        self._memory.leave(table)
        self._markers.put(TableRemoved(table))

    def _needs_copy(self, session: psycopg.Connection, table: PublishedTable) -> bool:
        if self._broken.get(table.name) == table.fingerprint:
            return False
        too_long = self._topics.too_long(table.name)
        if too_long is not None:
            log.error("table stopped", table=str(table.name), error=too_long.reason, solution=too_long.solution)
            self._broken[table.name] = table.fingerprint
            return False
        copy = self._memory.copies().get(table.name)
        why = why_copy(table, copy, self.log_id)
        left = self._memory.interrupted(table.name)
        if copy is not None and copy.finished and why is None:
            why = why_copy_partitions(session, table, copy)
            if why is None and table.partitioned and copy.filenode != table.filenode:
                self._memory.files(copy, table.filenode)
        elif left is not None and why is None:
            if table.name in self._finishing:
                return False
            why_not = self._beginnings.why_not_resumed(table, left)
            if why_not is None:
                return self._goes_on(table, left)
            why = f"its last one did not come to an end and cannot go on: {why_not}"
        if why is not None:
            log.info("table needs a copy", table=str(table.name), reason=why)
        return why is not None

    def _goes_on(self, table: PublishedTable, left: Interrupted) -> bool:
        """Whether a snapshot is needed for that. Where Kafka has every range, only the word of it is missing."""
        done = len(left.finished)
        if done < len(left.ranges):
            log.info("table copy goes on", table=str(table.name), finished_ranges=done, ranges=len(left.ranges))
            return True
        self._finish(left.whole(self._topics))
        return False

    def _begin_round(self, tables: list[PublishedTable]) -> None:
        """One snapshot for all tables that wait; the log's place is taken before, so no change after it is missed.

        It waits for every open writer of the server, in a thread of its own, so that copies under way and tables that
        leave are tended meanwhile."""
        self.registrar.change_topics([table.name for table in tables])
        place = self.place()
        self._copies.warm(sum(len(self._beginnings.ranges(table)) for table in tables))
        log.info("taking a snapshot", tables=[str(table.name) for table in tables])
        held = self._snapshots.submit(HeldSnapshot, self.config.source, self.config.pipeline, self.stop)
        self._waiting = _Waiting({table.name: table for table in tables}, place, held)

    def _begin_copies(self, session: psycopg.Connection, waiting: _Waiting) -> None:
        """A table that changed while the snapshot was waited for is left to the next round: its copy would have a shape
        that it no longer had at the snapshot."""
        self._waiting = None
        held = waiting.held.result()
        now = {table.name: table for table in published_tables(session, self.config.source.publication)}
        tables = [now[name] for name, table in waiting.tables.items() if _is_still(table, now.get(name))]
        this_round = Round(held, len(tables) + 1)
        for table in tables:
            copying = self._beginnings.resumed(table, this_round)
            if copying is None and (begun := self._beginnings.begun(table, this_round, waiting.place)) is not None:
                copying, started = begun
                self._markers.put(started)
            if copying is None:
                this_round.leave()
                continue
            self._finishing.discard(table.name)
            if copying.waiting:
                self._copies.add(copying)
            else:
                self._finish(copying.whole())
                this_round.leave()
        this_round.leave()

    def _conclude(self, copy: TableCopying, outcome: Report | None) -> None:
        name = copy.name
        match outcome:
            case Copied():
                self._finish(copy.whole())
            case FileChanged():
                log.warning("table was rewritten during its copy, copying it again", table=str(name))
            case Failed(reason=reason, solution=solution, permanent=True):
                log.error("table stopped", table=str(name), error=reason, solution=solution)
                self._broken[name] = copy.job.table.fingerprint
                self._memory.stopped(name, Errored(reason, solution, Retry.MANUAL, 1, DataSync()))
                position = Position(copy.job.generation, 0)
                self._markers.put(TableErrored(name, position, reason, solution))
            case Failed(reason=reason, solution=solution):
                log.warning("table copy failed, trying again", table=str(name), error=reason, solution=solution)
            case None:
                log.warning("table copy ended without a word, trying again", table=str(name))

    def _remember_range(self, copy: TableCopying, part: CopyRange, copied: Copied) -> None:
        """A range that is not remembered is only read again after an interruption."""
        try:
            end = sum(self.log.ends([copy.job.topic])[copy.job.topic])
        except BrokerUnreachable:
            return
        (range_,) = remembered(copy.name, copy.job.generation, [part])
        done = FinishedRange(copy.job.snapshot_lsn, copied.rows, copied.bytes, end)
        failpoint("copy.range_remembering", StoreUnreachable)
        self._memory.range_finished(replace(range_, finished=done))
        failpoint("copy.range_remembered", StoreUnreachable)

    def _finish(self, whole: Whole) -> None:
        """A copy topic that was written in one attempt ends where its rows do. One of several may hold more: what
        earlier ones left of ranges that they did not finish. Else Kafka lost rows, and only the next generation is
        true."""
        ends = self.log.ends([whole.topic])[whole.topic]
        records = sum(ends)
        if records < whole.fewest_records or (records > whole.rows and not whole.resumed):
            log.error(
                "kafka has other rows than were sent, copying again", table=str(whole.table), row_count=whole.rows
            )
            self._memory.clear(whole.table)
            return
        self._finishing.add(whole.table)
        size = whole.bytes * records // max(1, whole.rows)
        self._markers.put(CopyFinished(whole.table, whole.generation, records, size, ends, whole.last))


def _is_still(before: PublishedTable, now: PublishedTable | None) -> bool:
    return (
        now is not None
        and before.schema == now.schema
        and (before.filenode, before.fingerprint) == (now.filenode, now.fingerprint)
    )
