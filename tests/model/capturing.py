"""One process of capture: the real stream, checkpoints, table sync, memory and acknowledgement over the small servers.

What the model writes anew is what touches sockets: reading pgoutput, sending, and the workers that COPY. Each public
method is a step, between any two of which other processes may do theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from capture.acknowledgement import Acknowledgement, Released
from capture.checkpoints import LogPlace, last_accepted
from capture.control import ControlReader, switched_policy
from capture.errors import SlotInUse
from capture.slots import SlotState, judge_slot
from capture.table_sync.sync import TableSync
from schemas.checkpoint import Checkpoint
from schemas.identifiers import DestinationName, Epoch, LogId, SlotName
from schemas.lsn import NOWHERE, Lsn
from stores.cached import CachedStore
from stores.memory import RowsInMemory
from tests.model.broker import Broker, BrokerTail, Sending
from tests.model.copying import Checks, Registrar, Snapshots, Workers
from tests.model.source import Source
from tests.model.streamed import CONFIG, SMALL, TOPICS, ModelStream, ModelWriter, StreamedTables


@dataclass(eq=False)
class Capture:
    """An incarnation, from taking the slot to its end. It goes on as a zombie once another has taken the slot."""

    source: Source
    broker: Broker
    rows: RowsInMemory
    epoch: Epoch
    required: tuple[DestinationName, ...]
    connected: bool = True
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
        return (
            None if confirmed is None else SlotState(SlotName("s"), "pgoutput", "d", str(confirmed), "reserved", None)
        )

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
        reported = len(broker.logs[TOPICS.feedback]) if Checks.hear_all_first else 0
        self.feedback = BrokerTail(broker, TOPICS.feedback, reported)
        control_from = last[1].control if last else len(broker.logs[TOPICS.control])
        self.acknowledgement = Acknowledgement(
            CONFIG.acknowledge,
            self.required,
            self.log_id,
            self._released(),
            self.feedback,  # type: ignore[arg-type]
        )
        self.acknowledgement.hear(broker.read(TOPICS.feedback, 0, reported))
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
            "config": CONFIG,
            "nursery": None,
            "log_id": self.log_id,
            "epoch": self.epoch,
            "database": "d",
            "place": self._place,
            "store": self.store,
            "log": self.broker,
            "registrar": Registrar(self.broker),
            "stop": None,
            "reached": self._reached,
            "_snapshots": self.snapshots,
        }
        return TableSync(**fields)

    def _place(self) -> LogPlace:
        return self.writer.place

    def _reached(self) -> Lsn:
        return self.writer.lsn

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
