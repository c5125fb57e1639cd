"""One process of capture: the real stream, checkpoints, table sync, memory and acknowledgement over the small servers.

What the model writes anew is what touches sockets: reading pgoutput, sending, and the workers that COPY. Each public
method is a step, between any two of which other processes may do theirs.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from capture.acknowledgement import Acknowledgement, Released
from capture.checkpoints import CheckpointWriter, LogPlace, last_accepted
from capture.config import CaptureConfig, CaptureTuning, PartialPublish, SourceConfig
from capture.control import ControlReader, switched_policy
from capture.errors import SlotInUse
from capture.pgoutput.messages import UNCHANGED, Delete, Insert, Truncate, Update
from capture.slots import SlotState, judge_slot
from capture.streaming import Stream
from capture.table_sync.copier import Copied, FileChanged
from capture.table_sync.copies import TableCopying
from capture.table_sync.sync import TableSync
from capture.transcode.reference import Origin
from schemas.checkpoint import Checkpoint
from schemas.connections import KafkaConfig
from schemas.envelope import Op
from schemas.identifiers import DestinationName, Epoch, LogId, PipelineName, SchemaId, SlotName, TableName
from schemas.lsn import NOWHERE, Lsn
from schemas.table import TableSchema
from schemas.topics import Topics
from stores.cached import CachedStore
from stores.memory import RowsInMemory
from tests.model.broker import Broker, BrokerTail, Change, Sending
from tests.model.source import Message, Snapshot, Source

PIPELINE = PipelineName("p")
TOPICS = Topics(PIPELINE)
SMALL = (TOPICS.checkpoints, TOPICS.control, TOPICS.schemas, TOPICS.feedback)
_CONFIG = CaptureConfig(
    pipeline=PIPELINE,
    source=SourceConfig(dsn="host=none", publication="p", partial_publish=PartialPublish.ALLOW),
    kafka=KafkaConfig(bootstrap_servers="none:1"),
    tuning=CaptureTuning(copy_range_size=8192),
    state_path="none",
)


class Transcoder:
    """Messages to changes."""

    def __init__(self, table: TableSchema, epoch: Epoch) -> None:
        self.table = table
        self._epoch = epoch

    def key(self, _row: Sequence[Any]) -> None:
        """Topics have one partition, so it says nothing here."""

    def value(self, op: Op, before: Sequence[Any] | None, after: Sequence[Any] | None, origin: Origin) -> Change:
        unsent = [c.name for c, value in zip(self.table.columns, after or (), strict=False) if value is UNCHANGED]
        image = None if after is None else tuple(None if value is UNCHANGED else value for value in after)
        old = None if before is None else tuple(before)
        return Change(origin.commit_lsn, origin.ordinal, self._epoch, op.value, old, image, tuple(unsent))


@dataclass
class StreamedTable:
    """As StreamTables has it."""

    topic: str
    transcoder: Transcoder
    errored: bool = False


class StreamedTables:
    """Tables of the stream. Shapes do not change in the model."""

    def __init__(self, source: Source, broker: Broker, epoch: Epoch) -> None:
        names = {schema.id: name for name, schema in source.schemas.items()}
        self._tables = {
            id_: StreamedTable(TOPICS.changes(name), Transcoder(source.schemas[name], epoch))
            for id_, name in names.items()
        }
        self._broker = broker

    def __getitem__(self, relation: int) -> StreamedTable:
        table = self._tables[relation]
        self._broker.ensure_all([table.topic])
        return table

    def copy_started(self, _marker: object) -> None:
        """It has the shape that it was copied with."""

    def remember_versions(self) -> None:
        """There is one."""


class Pump:
    """Where the stream stands, and what it has sent since the last checkpoint."""

    def __init__(self, sending: Sending, start: Lsn) -> None:
        self._sending = sending
        self.safe: int = start
        self.full = 0
        self.in_transaction = False
        self.origin = Origin(0, 0, 1, 0, 0)
        self._moved: dict[tuple[str, SchemaId], int] = {}

    @property
    def rows(self) -> int:
        return sum(self._moved.values())

    def send(self, table: StreamedTable, _key: None, value: Change) -> None:
        self._sending.send(table.topic, value)
        place = (table.topic, SchemaId(table.transcoder.table.id))
        self._moved[place] = self._moved.get(place, 0) + 1

    def moved(self) -> dict[tuple[str, SchemaId], tuple[int, int]]:
        return {place: (rows, rows) for place, rows in self._moved.items()}

    def reset(self) -> None:
        self._moved = {}


class Pulse:
    """Nothing takes time here."""

    @staticmethod
    def during(work: Any) -> Any:  # noqa: ANN401 -- any function
        return work()


class ModelWriter(CheckpointWriter):
    """The real one; only the way to Kafka is short."""

    def __init__(self, broker: Broker, log_id: LogId, epoch: Epoch) -> None:
        self._log = broker  # type: ignore[assignment]
        self._topic = TOPICS.checkpoints
        self._log_id = log_id
        self._epoch = epoch
        self._ends = {}
        self._written = 0
        self._lock = threading.Lock()
        self._place = LogPlace(0, {})
        self.lsn = NOWHERE
        self.commit_ts = 0

    def _write(self, checkpoint: Checkpoint, key: bytes | None = None) -> None:
        assert key is None
        offset = self._log.append(self._topic, checkpoint.encode())  # type: ignore[attr-defined]
        self._place = LogPlace(offset + 1, dict(self._ends))


class ModelStream(Stream):
    """The real one, fed with messages one by one."""

    def __init__(self, capture: Capture, tables: StreamedTables, sync: TableSync, control: ControlReader) -> None:
        self._tables = tables  # type: ignore[assignment]
        self._producer = capture.sending  # type: ignore[assignment]
        self._writer = capture.writer
        self._acknowledgement = capture.acknowledgement
        self._control = control
        self._desk = sync
        self._pulse = Pulse()  # type: ignore[assignment]
        self._tuning = _CONFIG.tuning
        self._pump = Pump(capture.sending, capture.writer.lsn)  # type: ignore[assignment]
        self._markers = []
        self._switched = False
        self._last_cut = 0.0

    @property
    def pump(self) -> Pump:
        return self._pump  # type: ignore[return-value]

    def take(self, message: Message) -> None:
        lsn = Lsn(self.pump.origin.commit_lsn)
        match message:
            case Insert(relation=relation, new=new):
                self._row(self._tables[relation], Op.CREATE, None, new, lsn)
            case Update(relation=relation):
                self._update(self._tables[relation], message, lsn)
            case Delete(relation=relation, old=old):
                self._row(self._tables[relation], Op.DELETE, old, None, lsn)
            case Truncate(relations=relations):
                for relation in relations:
                    self._row(self._tables[relation], Op.TRUNCATE, None, None, lsn)

    @property
    def has_news(self) -> bool:
        """Whether a checkpoint would say anything."""
        return bool(self.pump.rows or self._markers or self._switched or self.pump.safe > self._writer.lsn)

    def cut(self) -> None:
        """Commands, and then a checkpoint."""
        for command in self._control.new():
            self._do(command)
        self._markers += self._drained()
        if self.has_news:
            self._cut()


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


@dataclass
class Capture:
    """An incarnation, from taking the slot to its end. It goes on as a zombie once another has taken the slot."""

    source: Source
    broker: Broker
    rows: RowsInMemory
    epoch: Epoch
    required: tuple[DestinationName, ...]
    connected: bool = True
    alive: bool = True
    ready: bool = False
    checked: bool = False
    seen: int = 0
    """How much WAL had come when the connection was lost."""
    transaction: int = 0
    message: int = 0
    _acknowledged: object = None
    _looked_at: object = None
    sending: Sending = field(init=False)

    def __post_init__(self) -> None:
        self.sending = Sending(self.broker)
        self.store = CachedStore(self.rows)
        self.broker.ensure_all(SMALL)
        self.last = last_accepted(self.broker, TOPICS.checkpoints)  # type: ignore[arg-type]
        slot = self._slot()
        judge_slot(slot, SlotName("s"), self.last[1].lsn if self.last else None)
        if slot is None:
            self.source.write_other()
            self.source.confirmed = self.source.end
        assert self.source.confirmed is not None
        self.start = self.last[1].lsn if self.last else self.source.confirmed

    def _slot(self) -> SlotState | None:
        confirmed = self.source.confirmed
        return None if confirmed is None else SlotState(SlotName("s"), "pgoutput", "d", str(confirmed), "reserved", None)

    def check(self) -> None:
        """The slot is ours; was anybody still writing?"""
        self.store.claim()
        if last_accepted(self.broker, TOPICS.checkpoints) != self.last:  # type: ignore[arg-type]
            raise SlotInUse("Another capture of this pipeline was still writing.")
        self.checked = True

    def open(self) -> None:
        """The opening checkpoint, and all that runs from then on."""
        last, source, broker = self.last, self.source, self.broker
        self.log_id = last[1].log_id if last else LogId(f"log {self.epoch}")
        self.feedback = BrokerTail(broker, TOPICS.feedback)
        control_from = last[1].control if last else len(broker.logs[TOPICS.control])
        self.acknowledgement = Acknowledgement(
            _CONFIG.acknowledge, self.required, self.log_id, self._released(), self.feedback  # type: ignore[arg-type]
        )
        switched = switched_policy(broker, TOPICS.control, control_from)  # type: ignore[arg-type]
        if switched is not None:
            self.acknowledgement.switch(switched)
        self.writer = ModelWriter(broker, self.log_id, self.epoch)
        changes = {topic for topic in broker.topics() if TOPICS.table_of_changes(topic) is not None}
        self.writer.open(self.start, changes, 0, control_from)
        self.snapshots = Snapshots()
        self.sync = self._table_sync()
        self.workers = self.sync._copies = Workers(source, broker, self.epoch)  # type: ignore[assignment]
        self.commands = BrokerTail(broker, TOPICS.control, control_from)
        control = ControlReader(self.commands, control_from)  # type: ignore[arg-type]
        self.stream = ModelStream(self, StreamedTables(source, broker, self.epoch), self.sync, control)
        self.transaction = len(source.wal) - len(source.since(self.start))
        self.ready = True

    def _released(self) -> Released:
        """As `capture.run` has it."""
        lsn = self.source.confirmed
        assert lsn is not None
        first = next(self.broker.read(TOPICS.checkpoints, 0, 1), None)
        began = Checkpoint.decode(first.value).lsn if first is not None and first.value is not None else lsn
        return Released(lsn, anything=lsn > began)

    def _table_sync(self) -> TableSync:
        fields: dict[str, Any] = {
            "config": _CONFIG,
            "nursery": None,
            "log_id": self.log_id,
            "epoch": self.epoch,
            "database": "d",
            "place": lambda: self.writer.place,
            "store": self.store,
            "log": self.broker,
            "registrar": Registrar(self.broker),
            "stop": SimpleNamespace(is_set=lambda: False),
            "reached": lambda: self.writer.lsn,
            "_snapshots": self.snapshots,
        }
        return TableSync(**fields)

    # The stream.

    @property
    def unread(self) -> int:
        """Transactions that have come, or will."""
        return (len(self.source.wal) if self.connected else self.seen) - self.transaction

    def read(self) -> None:
        """The next message."""
        transaction, pump = self.source.wal[self.transaction], self.stream.pump
        if not pump.in_transaction:
            pump.in_transaction = True
            pump.origin.commit_lsn, pump.origin.ordinal = transaction.commit_lsn, 0
        self.stream.take(transaction.messages[self.message])
        self.message += 1
        if self.message == len(transaction.messages):
            self.transaction, self.message = self.transaction + 1, 0
            pump.in_transaction, pump.safe = False, transaction.end_lsn

    def keepalive(self) -> None:
        """The server has sent all there is, and says how far its WAL goes."""
        self.stream.pump.safe = max(self.stream.pump.safe, self.source.end)

    @property
    def would_cut(self) -> bool:
        has_news = self.stream.has_news or self.commands.waiting > 0 or not self.sync._markers.empty()
        return has_news and not self.stream.pump.in_transaction

    @property
    def would_acknowledge(self) -> bool:
        return self.feedback.waiting > 0 or self._acknowledged != self._known()

    def _known(self) -> object:
        return self.writer.lsn, self.source.end, self.acknowledgement._in_force

    def acknowledge(self, arriving: int | None = None) -> None:
        """Feedback that has arrived by now, and a status update. One that was cut off talks to nobody."""
        self.feedback.arriving = arriving
        self.acknowledgement.update(self.writer.lsn, self.source.end)
        self._acknowledged = self._known()
        if self.connected:
            self.source.confirmed = max(self.source.confirmed or NOWHERE, self.acknowledgement.flushed)

    # Table sync.

    @property
    def would_look(self) -> bool:
        return self._looked_at != self._to_look_at()

    def look(self) -> None:
        self.sync._take_requests()
        self.sync._look_at_publication(self.source)  # type: ignore[arg-type]
        self._looked_at = self._to_look_at()

    def _to_look_at(self) -> object:
        """What the next look would find otherwise than the last."""
        sync, source = self.sync, self.source
        return (
            (self.rows._revision, sync._requests.qsize(), sync._waiting is None, sorted(self.workers.tables())),
            (tuple(source.members.items()), tuple(source.filenodes.items()), sorted(sync._finishing)),
        )

    def snapshot(self) -> None:
        assert self.snapshots.asked is not None
        self.snapshots.asked.set_result(self.source.snapshot())
        self.snapshots.asked = None

    def begin_copies(self) -> None:
        self.sync._take_requests()
        waiting = self.sync._waiting
        assert waiting is not None
        self.sync._begin_copies(self.source, waiting)  # type: ignore[arg-type]
