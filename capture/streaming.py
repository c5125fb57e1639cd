"""The loop: read, transcode, produce, cut checkpoints at commit boundaries, report status.

Nothing is kept per transaction: protocol 1 sends committed transactions whole, and Begin already carries the commit
LSN. Ordinals are given before anything is skipped, so a position is the same in every incarnation.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Protocol, assert_never

import structlog

from capture.acknowledgement import Acknowledgement
from capture.checkpoints import CheckpointWriter
from capture.config import CaptureTuning
from capture.control import ControlReader
from capture.ddl import PREFIX, decode_ddl
from capture.link import LinkWatch
from capture.metrics import (
    ACKNOWLEDGED_LAG,
    BYTES,
    CHANGES,
    CHECKPOINT_LSN,
    CHECKPOINTS,
)
from capture.pgoutput.decoder import decode
from capture.pgoutput.messages import (
    Begin,
    ColumnValue,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Origin,
    Relation,
    Truncate,
    Type,
    Update,
)
from capture.pgoutput.stream import Keepalive, XLogData
from capture.producer import BoundedProducer
from capture.pulse import Pulse
from capture.replication_connection import ReplicationConnection
from capture.slot_wal import SlotWalWatch
from capture.tables import StreamTable, StreamTables
from capture.transcode.choose import chosen_path
from capture.transcode.contract import PumpedTable
from capture.transcode.updates import InPlace, Move, settle
from schemas.checkpoint import CopyStarted, Marker, Moved, SchemaChanged, TableErrored
from schemas.control import CaptureCommand, Resync, SwitchPolicy
from schemas.envelope import Op
from schemas.failpoints import failpoint
from schemas.identifiers import TableName
from schemas.lsn import Lsn, Position
from schemas.pg_types.pg_type import ValueNotCarried
from stores.errors import StoreUnreachable

_READ_SECONDS = 0.1
_LOOK_SECONDS = 0.01

log = structlog.get_logger(__name__)


class SyncDesk(Protocol):
    """How the stream talks with table sync, which runs beside it."""

    complete: bool
    """All that capture was to do is done."""

    def drain(self) -> list[Marker]:
        """Markers that wait for the next checkpoint."""

    def written(self, markers: Sequence[Marker]) -> None:
        """These markers are on Kafka now, in a checkpoint."""

    def request(self, table: TableName) -> None:
        """The table needs a new copy. Remembered durably when this returns."""


class Stream:
    """One epoch of capture, from its opening checkpoint to the end of the connection."""

    def __init__(
        self,
        connection: ReplicationConnection,
        tables: StreamTables,
        producer: BoundedProducer,
        writer: CheckpointWriter,
        acknowledgement: Acknowledgement,
        control: ControlReader,
        desk: SyncDesk,
        pulse: Pulse,
        link: LinkWatch,
        watch: SlotWalWatch,
        tuning: CaptureTuning,
    ) -> None:
        self._connection = connection
        self._tables = tables
        self._producer = producer
        self._writer = writer
        self._acknowledgement = acknowledgement
        self._control = control
        self._desk = desk
        self._pulse = pulse
        self._link = link
        self._watch = watch
        self._tuning = tuning
        self._pump = chosen_path().pump(
            tables, producer.send_batch, producer.largest, writer.lsn, writer.commit_ts, tuning.checkpoint_rows
        )
        self._markers: list[Marker] = []
        self._switched = False
        self._next_look = self._last_cut = time.monotonic()

    def run(self, stop: threading.Event) -> None:
        """Streams until `stop`, which it sets itself once all is done; then closes with a checkpoint if no transaction
        is open."""
        while not stop.is_set():
            self._read()
            now = time.monotonic()
            if now >= self._next_look:
                self._look_up(now)
                self._next_look = now + _LOOK_SECONDS
            if self._desk.complete and not self._pump.in_transaction:
                stop.set()
        if self._pump.in_transaction:
            self._producer.drop_unsent()
        else:
            self._cut(completes=self._desk.complete)
            self._acknowledgement.update(self._writer.lsn)
            self._pulse.report()

    def _read(self) -> None:
        """Takes what has come, most of it in the pump; cuts where the pump stopped at a full window."""
        pump = self._pump
        try:
            frame = self._connection.read(pump, _READ_SECONDS)
        except ValueNotCarried as error:
            self._stop_table(pump.table, error)
            pump.origin.ordinal += 1
            return
        match frame:
            case XLogData():
                self._message(frame)
            case Keepalive(end=end, reply_requested=reply):
                if not pump.in_transaction:
                    pump.safe = max(pump.safe, end)
                if reply:
                    self._pulse.report()
            case None:
                if pump.rows >= pump.full and not pump.in_transaction:
                    self._markers += self._drained()
                    self._cut()

    def _look_up(self, now: float) -> None:
        """All that is done by the clock, between frames."""
        self._link.look(now)
        self._producer.poll()
        if self._pump.in_transaction:
            if now - self._last_cut >= self._tuning.checkpoint_interval.total_seconds():
                self._pump.full = 0  # cut at the next commit
        else:
            for command in self._control.new():
                failpoint("command.obeying", StoreUnreachable)
                self._do(command)
                failpoint("command.obeyed", StoreUnreachable)
            self._cut_if_due(now)
        if self._acknowledgement.update(self._writer.lsn, max(Lsn(self._pump.safe), self._watch.end)):
            self._pulse.report()
        ACKNOWLEDGED_LAG.set(max(0, self._pump.safe - self._acknowledgement.flushed))
        self._pulse.beat()

    def _do(self, command: CaptureCommand) -> None:
        match command:
            case Resync(table=table):
                self._desk.request(table)
            case SwitchPolicy(wanted=wanted):
                self._acknowledgement.switch(wanted)
                self._switched = True  # the next checkpoint tells everybody that it is done
            case _:
                assert_never(command)

    def _cut_if_due(self, now: float) -> None:
        self._markers += self._drained()
        since = now - self._last_cut
        if self._pump.rows or self._markers or self._switched:
            if since >= self._tuning.checkpoint_interval.total_seconds():
                self._cut()
        elif since >= self._tuning.idle_interval.total_seconds():
            if self._pump.safe > self._writer.lsn:
                self._cut()
            else:
                self._last_cut = now
                self._pulse.report(ask_for_reply=True)

    def _drained(self) -> list[Marker]:
        markers: list[Marker] = []
        for marker in self._desk.drain():
            markers.append(marker)
            if isinstance(marker, CopyStarted):
                changed = self._pulse.during(partial(self._tables.copy_started, marker))
                if changed is not None:
                    self._desk.request(changed.table)
                    markers.append(changed)
        return markers

    def _cut(self, *, completes: bool = False) -> None:
        pump = self._pump
        moved = tuple(Moved(topic, schema, rows, size) for (topic, schema), (rows, size) in pump.moved().items())
        markers = tuple(self._markers)
        self._producer.flush()
        self._tables.remember_versions()
        cut = partial(
            self._writer.cut,
            Lsn(pump.safe),
            moved,
            pump.origin.commit_ts,
            self._control.next_offset,
            markers,
            completes=completes,
        )
        self._pulse.during(cut)
        self._desk.written(markers)
        self._markers.clear()
        self._switched = False
        pump.reset()
        pump.full = self._tuning.checkpoint_rows
        self._last_cut = time.monotonic()
        CHECKPOINTS.inc()
        CHECKPOINT_LSN.set(self._writer.lsn)
        for each in moved:
            CHANGES.labels(each.topic).inc(each.rows)
            BYTES.inc(each.bytes)

    def _message(self, frame: XLogData) -> None:
        """What the pump leaves: all that is not one record of a change."""
        message = decode(frame.payload)
        origin = self._pump.origin
        match message:
            case Update(relation=relation):
                self._update(self._tables[relation], message, frame.start)
            case Insert(relation=relation, new=new):
                self._row(self._tables[relation], Op.CREATE, None, new, frame.start)
            case Delete(relation=relation, old=old):
                self._row(self._tables[relation], Op.DELETE, old, None, frame.start)
            case Relation():
                self._follow(self._pulse.during(partial(self._tables.met, message, self._position(), self._xid())))
            case Truncate(relations=relations):
                for relation in relations:
                    self._row(self._tables[relation], Op.TRUNCATE, None, None, frame.start)
            case LogicalMessage(transactional=transactional, prefix=prefix, content=content):
                if transactional and prefix == PREFIX:
                    self._ddl(content)
                origin.ordinal += transactional
            case Type() | Origin():
                pass
            case Begin() | Commit():
                raise AssertionError("the pump takes every Begin and Commit")
            case _:
                assert_never(message)

    def _ddl(self, content: bytes) -> None:
        told = decode_ddl(content)
        if told is None:
            log.warning("message of an event trigger not understood", prefix=PREFIX)
            return
        altered = partial(self._tables.altered, told, self._position(), self._xid())
        self._follow(self._pulse.during(altered))

    def _follow(self, changed: SchemaChanged | None) -> None:
        if changed is None:
            return
        if changed.rewrite:
            log.warning("table was altered, copying it again", table=str(changed.table))
            self._desk.request(changed.table)
        else:
            log.info("table was altered, following", table=str(changed.table))
        self._markers.append(changed)

    def _position(self) -> Position:
        """Of the next change."""
        return Position(Lsn(self._pump.origin.commit_lsn), self._pump.origin.ordinal)

    def _xid(self) -> int:
        xid = self._pump.origin.xid
        assert xid is not None  # noqa: S101 -- Begin has it; only copied rows are of no transaction
        return xid

    def _update(self, table: StreamTable, update: Update, lsn: Lsn) -> None:
        """An update; a change of the key is a move: a delete of the old key, then a create that names it."""
        match settle(table.transcoder.table.columns, update):
            case InPlace(before=before, after=after):
                self._row(table, Op.UPDATE, before, after, lsn)
            case Move(before=before, after=after):
                self._row(table, Op.DELETE, before, None, lsn)
                self._row(table, Op.CREATE, before, after, lsn)

    def _row(
        self,
        table: StreamTable,
        op: Op,
        before: Sequence[ColumnValue] | None,
        after: Sequence[ColumnValue] | None,
        lsn: Lsn,
    ) -> None:
        origin = self._pump.origin
        origin.lsn = lsn
        if not table.errored:
            row = after if after is not None else before
            try:
                value = table.transcoder.value(op, before, after, origin)
                self._pump.send(table, None if row is None else table.transcoder.key(row), value)
            except ValueNotCarried as error:
                self._stop_table(table, error)
        origin.ordinal += 1

    def _stop_table(self, table: PumpedTable, error: ValueNotCarried) -> None:
        name = table.transcoder.table.name
        origin = self._pump.origin
        if self._tables.is_copied_after(name, origin.commit_lsn):
            log.warning("row left out, its table's copy is newer", table=str(name), error=error.reason)
            return
        position = self._position()
        log.error("table stopped", table=str(name), error=error.reason, solution=error.solution)
        table.errored = True
        self._markers.append(TableErrored(name, position, error.reason, error.solution))
