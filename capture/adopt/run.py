"""Stands in capture's place: Debezium's topics in, the topics of a pipeline out. Apply need not know of it.

A checkpoint says, among its `ends`, how far each of Debezium's topics was read for it. So after a crash every record is
in exactly one window: what a dead epoch left behind counts for nobody, as with capture.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, closing
from typing import assert_never

import structlog
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from capture.adopt.debezium import DebeziumSchemas, NotAdopted, placeholders
from capture.adopt.table import AdoptedTable, Shared
from capture.adopt.window import Window
from capture.checkpoints import CheckpointWriter, Ends, last_accepted, new_epoch, new_log_id
from capture.config import AdoptConfig, MissingBeginning
from capture.control import ControlReader
from capture.epochs import run_epochs
from capture.metrics import BYTES, CHANGES, CHECKPOINT_LSN, CHECKPOINTS
from capture.producer import BoundedProducer
from capture.registrar import Registrar
from schemas.control import Resync, SwitchPolicy
from schemas.errors import LogError, PenstockError
from schemas.identifiers import TableName
from schemas.lsn import Lsn
from schemas.patterns import matching
from schemas.pg_types.pg_type import ValueNotCarried
from schemas.topics import Topics
from stores.kafka_errors import MISSING, BrokerUnreachable, log_error
from stores.kafka_log import KafkaLog, TopicKind
from stores.kafka_tail import Tail
from stores.schema_registry import RegistryUnreachable, SchemaRegistry
from stores.schema_topic import SchemaTopic

_READ_SECONDS = 0.1
_READ_RECORDS = 2000
_FIRST_LSN = Lsn(1)

log = structlog.get_logger(__name__)


class AdoptTaken(LogError):
    """Another adopt of the pipeline has begun, and ended the epoch of this one."""

    solution = "Run one adopt of a pipeline at a time."


def run_adopt(config: AdoptConfig, stop: threading.Event) -> None:
    """Adopts until `stop`; waits for what is away; raises PenstockError where it cannot go on."""
    run_epochs(lambda parts: Adoption(config, parts), (BrokerUnreachable, RegistryUnreachable), stop)
    log.info("adopt stopped")


class Adoption:
    """One epoch, its opening checkpoint written; `parts` ends what it has opened."""

    def __init__(self, config: AdoptConfig, parts: ExitStack) -> None:
        self._config = config
        self._topics = Topics(config.pipeline)
        self._kafka = parts.enter_context(KafkaLog(config.kafka))
        self._make_topics()
        last = last_accepted(self._kafka, self._topics.checkpoints)
        self._epoch = new_epoch()
        log_id = last[1].log_id if last else new_log_id()
        lsn, commit_ts = (last[1].lsn, last[1].commit_ts) if last else (_FIRST_LSN, 0)
        self._writer = parts.enter_context(
            closing(CheckpointWriter(config.kafka, self._kafka, self._topics.checkpoints, log_id, self._epoch))
        )
        producer = parts.enter_context(
            closing(BoundedProducer(config.kafka, config.tuning.producer_memory, lambda: None))
        )
        self._window = Window(lsn, commit_ts, producer)
        self._shared = self._made_shared()
        self._tables = {
            topic: AdoptedTable(self._shared, topic, ends[0], begun=True)
            for topic, ends in (last[1].ends.items() if last else ())
            if self._is_wanted(topic)
        }
        self._left_out: set[str] = set()
        self._consumer = Consumer(
            config.kafka.client_settings()
            | {"group.id": "penstock", "enable.auto.commit": False, "auto.offset.reset": "error", "log_level": 0}
        )
        parts.callback(self._consumer.close)
        self._assign()
        first = last[1].control if last else self._kafka.ends([self._topics.control])[self._topics.control][0]
        control = Tail(config.kafka, self._topics.control, first)
        parts.callback(control.close)
        self._control = ControlReader(control, first)
        ours = {topic for topic in self._kafka.topics() if self._topics.table_of_changes(topic) is not None}
        self._writer.open(lsn, ours, commit_ts, first, self._read_to())
        self._last_cut = self._next_look = time.monotonic()
        log.info("adopt started", start_lsn=str(lsn), epoch=self._epoch, log_id=log_id, topics=sorted(self._tables))

    def _make_topics(self) -> None:
        self._kafka.ensure(self._topics.checkpoints, TopicKind.RECORDS)
        self._kafka.ensure(self._topics.control, TopicKind.KEPT)
        self._kafka.ensure_all([self._topics.schemas, self._topics.feedback], TopicKind.LATEST)

    def _made_shared(self) -> Shared:
        config = self._config
        schemas = SchemaTopic(config.kafka, self._kafka, self._topics.schemas)
        schemas.refresh()
        return Shared(
            pipeline=config.pipeline,
            epoch=self._epoch,
            theirs=DebeziumSchemas(SchemaRegistry(config.adopt.schema_registry).schema),
            placeholders=placeholders(config.adopt.unavailable_value),
            schemas=schemas,
            registrar=Registrar(config.pipeline, self._kafka, schemas),
            window=self._window,
        )

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            for message in self._consumer.consume(_READ_RECORDS, _READ_SECONDS):
                self._take(message)
            self._window.send()
            now = time.monotonic()
            if now >= self._next_look:
                self._look_for_topics()
                self._obey()
                self._next_look = now + self._config.tuning.publication_interval.total_seconds()
            self._cut_if_due(now)
        self._cut()

    def _take(self, message: Message) -> None:
        topic, error = message.topic() or "", message.error()
        table = self._tables.get(topic)
        if table is None or table.stopped:
            if error is not None:
                _raise_unless_passing(error, topic)
            return
        try:
            if error is not None:
                self._not_read(table, error)
            else:
                table.take(message, self._writer.place)
        except (NotAdopted, ValueNotCarried) as refused:
            self._stop(table, refused)

    def _stop(self, table: AdoptedTable, why: PenstockError) -> None:
        table.stop(why)
        self._consumer.pause([TopicPartition(table.topic, 0)])

    def _not_read(self, table: AdoptedTable, error: KafkaError) -> None:
        gone = MISSING | {KafkaError._AUTO_OFFSET_RESET}  # noqa: SLF001 -- so confluent-kafka names it
        if error.code() in gone:
            raise NotAdopted(
                f"Offset {table.next}, which is to be read next, is not there.",
                solution="Keep its records for longer than adopt may be away.",
            )
        _raise_unless_passing(error, table.topic)

    # Which topics.

    def _is_wanted(self, topic: str) -> bool:
        return bool(matching([topic], self._config.adopt.topics))

    def _look_for_topics(self) -> None:
        found = self._partitions()
        for table in self._tables.values():
            if not table.stopped and found.get(table.topic, 1) > 1:
                self._stop(table, _divided(table.topic, found[table.topic]))
        wanted = {topic for topic in found if self._is_wanted(topic)}
        new = sorted(wanted - self._tables.keys() - self._left_out)
        for topic in new:
            try:
                begin = self._beginning(topic, found[topic])
            except NotAdopted as refused:
                self._left_out.add(topic)
                log.warning("topic left out", topic=topic, error=refused.reason, solution=refused.solution)
            else:
                self._tables[topic] = AdoptedTable(self._shared, topic, begin, begun=False)
        if new:
            self._assign()

    def _partitions(self) -> dict[str, int]:
        return {topic: len(told.partitions) for topic, told in self._kafka.cluster().topics.items()}

    def _beginning(self, topic: str, partitions: int) -> int:
        """It has to be there: the copy of the table stands on it."""
        if partitions == 0:
            raise NotAdopted(f"Topic {topic} is not there.")
        if topic.startswith(f"{self._config.pipeline}."):
            raise NotAdopted(
                f"Topic {topic} could be one of the pipeline's own.",
                solution="Give the pipeline another name than the connector's `topic.prefix`.",
            )
        if partitions > 1:
            raise _divided(topic, partitions)
        begin = self._kafka.begins([topic])[topic][0]
        if begin > 0 and self._config.adopt.missing_beginning is MissingBeginning.REFUSE:
            raise NotAdopted(
                f"Topic {topic} begins at offset {begin}: rows that did not change since are not on it.",
                solution='Set `adopt.missing_beginning = "accept"`, start again, and have the connector send every row '
                "once more, by a signal for an incremental snapshot. Or capture the table instead.",
            )
        return begin

    def _assign(self) -> None:
        """Never while records that were read wait to be taken: they would come again."""
        read = [table for table in self._tables.values() if not table.stopped]
        self._consumer.assign([TopicPartition(table.topic, 0, table.next) for table in read])

    def _obey(self) -> None:
        for command in self._control.new():
            match command:
                case Resync(table=table):
                    self._begin_again(table)
                case SwitchPolicy():
                    log.warning("command passed over", error="The slot is Debezium's, and so is the WAL that it holds.")
                case _:
                    assert_never(command)

    def _begin_again(self, name: TableName) -> None:
        """Its topic is read from the beginning, into a new generation."""
        topics = [topic for topic, each in self._tables.items() if each.is_of(name)]
        if not topics:
            log.warning("command refused", table=str(name), error="It is on none of the adopted topics.")
        for topic in topics:
            try:
                begin = self._beginning(topic, self._partitions().get(topic, 0))
            except NotAdopted as refused:
                log.warning("command refused", table=str(name), error=refused.reason, solution=refused.solution)
                continue
            self._cut()  # what was read so far is of the generation before
            self._tables[topic] = AdoptedTable(self._shared, topic, begin, begun=False)
            self._assign()

    # The log.

    def _read_to(self) -> Ends:
        """Without the tables that were stopped: the next epoch begins them anew."""
        read = [table for table in self._tables.values() if table.begun and not table.stopped]
        return {table.topic: (table.read_to,) for table in read}

    def _cut_if_due(self, now: float) -> None:
        """Also while nothing comes: a log to which nobody writes is forgotten after `kafka.retention`."""
        tuning, window = self._config.tuning, self._window
        interval = tuning.checkpoint_interval if window.changes or window.markers else tuning.idle_interval
        if window.changes >= tuning.checkpoint_rows or now - self._last_cut >= interval.total_seconds():
            self._cut()

    def _cut(self) -> None:
        window, expected = self._window, self._writer.place.next_offset + 1
        window.flush()
        moved, lsn = window.moved, Lsn(window.lsn + 1)
        self._writer.cut(
            lsn, moved, window.commit_ts, self._control.next_offset, tuple(window.markers), read=self._read_to()
        )
        if self._writer.place.next_offset != expected:
            self._require_own_epoch()
        window.next(lsn)
        self._last_cut = time.monotonic()
        CHECKPOINTS.inc()
        CHECKPOINT_LSN.set(lsn)
        for each in moved:
            CHANGES.labels(each.topic).inc(each.rows)
            BYTES.inc(each.bytes)

    def _require_own_epoch(self) -> None:
        """Somebody else wrote to the log: a late word of an epoch that has ended, or the next one."""
        last = last_accepted(self._kafka, self._topics.checkpoints)
        if last is None or last[1].epoch != self._epoch:
            raise AdoptTaken(f"Another adopt of pipeline {self._config.pipeline} has begun.")


def _divided(topic: str, partitions: int) -> NotAdopted:
    return NotAdopted(
        f"Topic {topic} has {partitions} partitions, so nobody knows the order of its records.",
        solution="Have the connector write to topics of one partition (`topic.creation.default.partitions`).",
    )


def _raise_unless_passing(error: KafkaError, topic: str) -> None:
    if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return  # it is in no group: the client wants the name of one
    failure = log_error(error, f"reading {topic}", topic=topic, operation="Read")
    if not isinstance(failure, BrokerUnreachable):  # which the client waits for
        raise failure
