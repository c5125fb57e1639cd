"""The stream of capture: the real Stream and CheckpointWriter, fed with messages, over a producer of the model."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from capture.acknowledgement import Acknowledgement
from capture.checkpoints import CheckpointWriter, LogPlace
from capture.config import CaptureConfig, CaptureTuning, PartialPublish, SourceConfig
from capture.control import ControlReader
from capture.pgoutput.messages import UNCHANGED, Delete, Insert, Truncate, Update
from capture.streaming import Stream
from capture.table_sync.sync import TableSync
from capture.transcode.reference import Origin
from schemas.checkpoint import Checkpoint
from schemas.connections import KafkaConfig
from schemas.envelope import Op
from schemas.identifiers import Epoch, LogId, PipelineName, SchemaId
from schemas.lsn import NOWHERE, Lsn
from schemas.table import TableSchema
from schemas.topics import Topics
from tests.model.broker import Broker, Change, Sending
from tests.model.source import Message, Source

PIPELINE = PipelineName("p")
TOPICS = Topics(PIPELINE)
SMALL = (TOPICS.checkpoints, TOPICS.control, TOPICS.schemas, TOPICS.feedback)
CONFIG = CaptureConfig(
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


class Whose(Protocol):
    """The capture that a stream is of."""

    sending: Sending
    writer: ModelWriter
    acknowledgement: Acknowledgement


class ModelStream(Stream):
    """The real one, fed with messages one by one."""

    def __init__(self, capture: Whose, tables: StreamedTables, sync: TableSync, control: ControlReader) -> None:
        self._tables = tables  # type: ignore[assignment]
        self._producer = capture.sending  # type: ignore[assignment]
        self._writer = capture.writer
        self._acknowledgement = capture.acknowledgement
        self._control = control
        self._desk = sync
        self._pulse = Pulse()  # type: ignore[assignment]
        self._tuning = CONFIG.tuning
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
