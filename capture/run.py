"""Builds every part of capture and joins them; nobody else knows them all.

A connection that is lost (either server restarted, a network cut) ends the epoch, and the next one begins where the
last checkpoint stands. What a human must decide ends the process.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import stamina
import structlog
from prometheus_client import start_http_server

from capture.acknowledgement import Acknowledgement
from capture.checkpoints import CheckpointWriter, last_accepted, new_epoch, new_log_id
from capture.config import CaptureConfig, OnLostSlot
from capture.control import ControlReader
from capture.errors import SlotInUse, SlotLost, SourceUnreachable, source_error
from capture.preflight import preflight, require
from capture.producer import BoundedProducer
from capture.publication import published_tables
from capture.pulse import Pulse
from capture.replication_connection import ReplicationConnection, session_dsn
from capture.slots import SlotState, drop_slot, find_slot, judge_slot
from capture.streaming import Stream
from capture.table_sync.sync import TableSync
from capture.tables import Registrar, StreamTables
from schemas.checkpoint import Checkpoint
from schemas.identifiers import TableName, slot_name
from schemas.lsn import Lsn
from schemas.table import TableSchema
from schemas.topics import Topics
from stores.kafka_log import KafkaLog, Tail, TopicKind
from stores.schema_topic import SchemaTopic
from stores.sqlite import SqliteStore

_START_ATTEMPTS = 30
_RECONNECT_SECONDS = 600.0

log = structlog.get_logger(__name__)


def run_capture(config: CaptureConfig, stop: threading.Event) -> None:
    """Captures until `stop`; returns after a clean drain, raises PenstockError where it cannot go on."""
    require(preflight(config))
    with ExitStack() as stack:
        if config.tuning.metrics_port is not None:
            server, thread = start_http_server(config.tuning.metrics_port)
            stack.callback(thread.join)
            stack.callback(server.shutdown)
        store = stack.enter_context(SqliteStore(Path(config.state_path)))
        for attempt in stamina.retry_context(
            on=(SourceUnreachable, SlotInUse), attempts=None, timeout=_RECONNECT_SECONDS, wait_max=5.0
        ):
            with attempt:
                _capture_epoch(config, store, stop)


def _capture_epoch(config: CaptureConfig, store: SqliteStore, stop: threading.Event) -> None:
    """One incarnation: from its opening checkpoint until `stop` or the loss of a connection."""
    topics = Topics(config.pipeline)
    epoch = new_epoch()
    with ExitStack() as stack:
        kafka = stack.enter_context(KafkaLog(config.kafka))
        _make_topics(kafka, topics)
        session = stack.enter_context(_session(config))
        last = last_accepted(kafka, topics.checkpoints)
        log_id = last[1].log_id if last else new_log_id()
        connection = stack.enter_context(ReplicationConnection(config.source.dsn.get_secret_value()))
        start = _start_streaming(config, session, connection, last[1] if last else None, store, stop)
        if last_accepted(kafka, topics.checkpoints) != last:
            raise SlotInUse("Another capture of this pipeline was still writing checkpoints.")

        schemas = SchemaTopic(config.kafka, kafka, topics.schemas)
        registrar = Registrar(config.pipeline, kafka, schemas)
        tables = StreamTables(
            config.pipeline, session.info.dbname, epoch, registrar, lambda name: _catalog_schema(config, session, name)
        )
        _recreate_lost_topics(store, kafka, topics)
        for name, copy in store.copies().items():
            if copy.log_id == log_id:
                tables.remember_copy(name, copy.generation, copy.schema_id)

        feedback = Tail(config.kafka, topics.feedback)
        stack.callback(feedback.close)
        acknowledgement = Acknowledgement(
            config.acknowledge.policy, config.destinations, log_id, _confirmed(session, config), feedback
        )
        pulse = Pulse(connection, acknowledgement, _status_seconds(session, config))
        producer = BoundedProducer(config.kafka, config.tuning.producer_memory, pulse.beat)
        writer = CheckpointWriter(config.kafka, kafka, topics.checkpoints, log_id, epoch, pulse.beat)
        control_from = last[1].control if last else 0
        changes = {topic for topic in kafka.topics() if topics.table_of_changes(topic) is not None}
        writer.open(start, changes, last[1].commit_ts if last else 0, control_from)
        log.info("capture started", start_lsn=str(start), epoch=epoch, log_id=log_id)

        control = Tail(config.kafka, topics.control, control_from)
        stack.callback(control.close)
        sync_kafka = stack.enter_context(KafkaLog(config.kafka))
        sync_stop = threading.Event()
        sync = TableSync(
            config=config,
            log_id=log_id,
            epoch=epoch,
            database=session.info.dbname,
            place=lambda: writer.place,
            store=store,
            log=sync_kafka,
            registrar=Registrar(config.pipeline, sync_kafka, SchemaTopic(config.kafka, sync_kafka, topics.schemas)),
            stop=sync_stop,
        )
        thread = threading.Thread(target=sync.run, name="table-sync")
        stack.callback(thread.join)
        stack.callback(sync_stop.set)
        stream = Stream(
            connection=connection,
            tables=tables,
            producer=producer,
            writer=writer,
            acknowledgement=acknowledgement,
            control=ControlReader(control, control_from),
            desk=sync,
            pulse=pulse,
            tuning=config.tuning,
        )
        thread.start()
        stream.run(stop)
        log.info("capture stopped", checkpoint_lsn=str(writer.lsn))


def _make_topics(kafka: KafkaLog, topics: Topics) -> None:
    kafka.ensure(topics.checkpoints, TopicKind.RECORDS)
    kafka.ensure(topics.control, TopicKind.RECORDS)
    kafka.ensure(topics.schemas, TopicKind.LATEST)
    kafka.ensure(topics.feedback, TopicKind.LATEST)


def _recreate_lost_topics(store: SqliteStore, kafka: KafkaLog, topics: Topics) -> None:
    """A change topic that somebody deleted has lost changes: its table needs a new copy."""
    present = kafka.topics()
    for table in store.copies():
        topic = topics.changes(table)
        if topic not in present:
            log.warning("topic was deleted, copying its table again", table=str(table), topic=topic)
            kafka.ensure(topic, TopicKind.RECORDS)
            store.clear_for_copy(table)


@contextmanager
def _session(config: CaptureConfig) -> Iterator[psycopg.Connection]:
    try:
        session = psycopg.connect(session_dsn(config.source.dsn.get_secret_value()), autocommit=True)
    except psycopg.Error as error:
        raise source_error(error, "connecting") from error
    with session:
        yield session


def _start_streaming(
    config: CaptureConfig,
    session: psycopg.Connection,
    connection: ReplicationConnection,
    last: Checkpoint | None,
    store: SqliteStore,
    stop: threading.Event,
) -> Lsn:
    """Takes hold of the slot, so that no other capture can, and returns the LSN from which it streams."""
    name = slot_name(config.pipeline)
    slot = find_slot(session, name)
    try:
        judge_slot(slot, name, last.lsn if last else None)
    except SlotLost as lost:
        if config.tuning.on_lost_slot is OnLostSlot.FAIL:
            raise
        log.warning("slot lost, copying every table again", error=lost.reason)
        if slot is not None:
            drop_slot(session, name)
        slot = None
        for table in store.copies():
            store.clear_for_copy(table)
        last = None
    start = _slot_lsn(connection, slot, config, stop) if last is None else last.lsn
    for attempt in stamina.retry_context(on=SlotInUse, attempts=_START_ATTEMPTS, timeout=30.0, wait_max=1.0):
        with attempt:
            connection.start(name, config.source.publication, start)
    return start


def _slot_lsn(
    connection: ReplicationConnection, slot: SlotState | None, config: CaptureConfig, stop: threading.Event
) -> Lsn:
    if slot is not None:
        return slot.confirmed_lsn
    name = slot_name(config.pipeline)
    log.info("creating the slot", slot=name)
    return connection.create_slot(name, stop, lambda: log.info("slot waits for open transactions", slot=name))


def _catalog_schema(config: CaptureConfig, session: psycopg.Connection, name: TableName) -> TableSchema | None:
    try:
        found = published_tables(session, config.source.publication)
    except psycopg.Error as error:
        raise source_error(error, f"reading the shape of {name}") from error
    return next((table.schema for table in found if table.name == name), None)


def _confirmed(session: psycopg.Connection, config: CaptureConfig) -> Lsn:
    slot = find_slot(session, slot_name(config.pipeline))
    return slot.confirmed_lsn if slot else Lsn(0)


def _status_seconds(session: psycopg.Connection, config: CaptureConfig) -> float:
    """Well inside wal_sender_timeout, whatever is configured."""
    row = session.execute(
        "select setting::bigint from pg_settings where name = 'wal_sender_timeout'"  # in milliseconds; 0 is never
    ).fetchone()
    wanted = config.tuning.status_interval.total_seconds()
    return min(wanted, row[0] / 3000) if row and row[0] else wanted
