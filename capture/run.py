"""Builds every part of capture and joins them; nobody else knows them all.

A connection that is lost (either server restarted, a network cut) ends the epoch, and the next one begins where the
last checkpoint stands. What a human must decide ends the process.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import structlog
from confluent_kafka import OFFSET_BEGINNING

from capture.acknowledgement import Acknowledgement, Released
from capture.catalog_types import CatalogTypes, catalog_types
from capture.checkpoints import CheckpointWriter, last_accepted, new_epoch, new_log_id
from capture.config import CaptureConfig
from capture.control import ControlReader, switched_policy
from capture.epochs import run_epochs
from capture.errors import SlotInUse, SourceUnreachable, source_error
from capture.link import LinkWatch
from capture.owned_publication import keep_publication
from capture.preflight import connect, preflight, require
from capture.producer import BoundedProducer
from capture.promotion import PromotionWatch
from capture.publication import PublishedTable, published_tables
from capture.pulse import Pulse
from capture.registrar import Registrar
from capture.replication_connection import ReplicationConnection, session_dsn
from capture.schema_versions import SchemaVersions
from capture.server_findings import standby_findings
from capture.sessions import plain_session
from capture.slot_wal import SlotWalWatch
from capture.slots import TakenSlot, find_slot, take_slot
from capture.streaming import Stream
from capture.table_sync.left_sessions import end_left_sessions
from capture.table_sync.memory import forget_copies_under_way_elsewhere
from capture.table_sync.nursery import Nursery
from capture.table_sync.sync import TableSync
from capture.tables import StreamTables
from capture.visibility import wait_until_visible
from schemas.checkpoint import Checkpoint
from schemas.identifiers import LogId, TableName, slot_name
from schemas.lsn import NOWHERE
from schemas.topics import Topics
from stores.errors import StoreTaken
from stores.kafka_errors import BrokerUnreachable
from stores.kafka_log import KafkaLog, TopicKind
from stores.kafka_tail import Tail
from stores.schema_registry import RegistryUnreachable, SchemaRegistry
from stores.schema_topic import SchemaTopic, UnknownSchema
from stores.small_topics import checkpoints
from stores.sqlite import SqliteStore
from stores.state import CAPTURE

_DRAIN_SECONDS = 2.0
_AWAY = (SourceUnreachable, SlotInUse, StoreTaken, RegistryUnreachable, BrokerUnreachable)

log = structlog.get_logger(__name__)


def run_capture(config: CaptureConfig, nursery: Nursery, stop: threading.Event) -> None:
    """Captures until `stop`; returns after a clean drain, raises PenstockError where it cannot go on."""
    if config.source.tables:
        _make_publication(config)
    require(preflight(config))
    with SqliteStore(Path(config.state_path)) as store:
        run_epochs(lambda parts: _opened_stream(config, nursery, store, parts, stop), _AWAY, stop)
    log.info("capture stopped")


def _opened_stream(
    config: CaptureConfig, nursery: Nursery, store: SqliteStore, parts: ExitStack, stop: threading.Event
) -> Stream:
    try:
        return _opened_epoch(config, nursery, store, parts, stop)
    except psycopg.Error as error:
        raise source_error(error, "opening the stream") from error


def _opened_epoch(
    config: CaptureConfig, nursery: Nursery, store: SqliteStore, stack: ExitStack, stop: threading.Event
) -> Stream:
    """One incarnation, its opening checkpoint written and its table sync running; `stack` ends all of it."""
    topics = Topics(config.pipeline)
    epoch = new_epoch()
    kafka = stack.enter_context(KafkaLog(config.kafka))
    _make_topics(kafka, topics)
    if config.kafka.schema_registry is not None:
        SchemaRegistry(config.kafka.schema_registry).compatibility()  # an epoch that cannot register is not begun
    session = stack.enter_context(_session(config))
    connection = stack.enter_context(
        ReplicationConnection(config.source.dsn.get_secret_value(), config.source.patience.total_seconds())
    )
    last, taken = _taken(config, store, kafka, session, connection, stop)
    log_id = last[1].log_id if last and not taken.anew else new_log_id()
    store.forget(taken.start if last and not taken.anew else NOWHERE)

    schemas = SchemaTopic(config.kafka, kafka, topics.schemas)
    registrar = Registrar(config.pipeline, kafka, schemas)
    tables = StreamTables(
        config.pipeline,
        session.info.dbname,
        epoch,
        registrar,
        lambda name, xid: _published_table(config, session, name, xid),
        lambda oids: _catalog_types(session, oids),
        SchemaVersions(store),
    )
    _recreate_lost_topics(store, kafka, topics)
    forget_copies_under_way_elsewhere(store, taken.source)
    _remember_copies(store, tables, log_id)

    reported = kafka.ends([topics.feedback])[topics.feedback][0]
    feedback = Tail(config.kafka, topics.feedback, reported)
    stack.callback(feedback.close)
    released = _released(kafka, topics, session, config)
    acknowledgement = Acknowledgement(config.acknowledge, config.destinations, log_id, released, feedback)
    acknowledgement.hear(kafka.read(topics.feedback, OFFSET_BEGINNING, reported))
    # Without a checkpoint every table is copied anyway: the commands before count as done.
    control_from = last[1].control if last else kafka.ends([topics.control])[topics.control][0]
    switched = switched_policy(kafka, topics.control, control_from)
    if switched is not None:
        acknowledgement.switch(switched)
    timeout = _wal_sender_timeout(session)
    pulse = stack.enter_context(Pulse(connection, acknowledgement, _status_seconds(timeout, config)))
    link = LinkWatch(
        connection, session, pulse, config.source.dsn.get_secret_value(), slot_name(config.pipeline), timeout
    )
    producer = stack.enter_context(closing(BoundedProducer(config.kafka, config.tuning.producer_memory, pulse.beat)))
    writer = stack.enter_context(closing(CheckpointWriter(config.kafka, kafka, topics.checkpoints, log_id, epoch)))
    changes = {topic for topic in kafka.topics() if topics.table_of_changes(topic) is not None}
    writer.open(taken.start, changes, last[1].commit_ts if last else 0, control_from)
    store.set_source(CAPTURE, taken.source)  # not before the opening: until then the topics are those of the old one
    if taken.from_standby:
        stack.enter_context(
            PromotionWatch(
                session_dsn(config.source.dsn.get_secret_value()),
                slot_name(config.pipeline),
                connection.backend_pid,
                lambda timeline: store.set_source(CAPTURE, replace(taken.source, timeline=timeline)),
            )
        )
    log.info("capture started", start_lsn=str(taken.start), epoch=epoch, log_id=log_id)

    control = Tail(config.kafka, topics.control, control_from)
    stack.callback(control.close)
    sync_kafka = stack.enter_context(KafkaLog(config.kafka))
    sync = TableSync(
        config=config,
        nursery=nursery,
        log_id=log_id,
        epoch=epoch,
        database=session.info.dbname,
        place=lambda: writer.place,
        store=store,
        log=sync_kafka,
        registrar=Registrar(config.pipeline, sync_kafka, SchemaTopic(config.kafka, sync_kafka, topics.schemas)),
        stop=threading.Event(),
        reached=lambda: writer.lsn,
    )
    watch = SlotWalWatch(
        session_dsn(config.source.dsn.get_secret_value()),
        slot_name(config.pipeline),
        config.destinations,
        lambda: acknowledgement.holders,
    )
    stack.enter_context(watch)
    thread = threading.Thread(target=sync.run, name="table-sync")
    stack.callback(_end_sync, sync, thread)
    stream = Stream(
        connection=connection,
        tables=tables,
        producer=producer,
        writer=writer,
        acknowledgement=acknowledgement,
        control=ControlReader(control, control_from),
        desk=sync,
        pulse=pulse,
        link=link,
        watch=watch,
        tuning=config.tuning,
    )
    thread.start()
    return stream


def _taken(
    config: CaptureConfig,
    store: SqliteStore,
    kafka: KafkaLog,
    session: psycopg.Connection,
    connection: ReplicationConnection,
    stop: threading.Event,
) -> tuple[tuple[int, Checkpoint] | None, TakenSlot]:
    """The last checkpoint and the slot. Nothing is written to the store before that is ours, and all that another
    capture writes there from then on is refused."""
    topic = Topics(config.pipeline).checkpoints
    last, known = last_accepted(kafka, topic), store.source(CAPTURE)
    taken = take_slot(config, session, connection, last[1].lsn if last else None, known, stop)
    store.claim()
    if last_accepted(kafka, topic) != last or store.source(CAPTURE) != known:
        raise SlotInUse("Another capture of this pipeline was still writing.")
    end_left_sessions(session, config.pipeline)
    return last, taken


def _end_sync(sync: TableSync, thread: threading.Thread) -> None:
    """Also where the server answers nothing any more."""
    sync.stop.set()
    thread.join(_DRAIN_SECONDS)
    sync.abandon()
    thread.join()


def _make_publication(config: CaptureConfig) -> None:
    with connect(config.source) as session:
        try:
            require(standby_findings(session, config))
            keep_publication(session, config.pipeline, config.source)
        except psycopg.Error as error:
            raise source_error(error, "making the publication") from error


def _make_topics(kafka: KafkaLog, topics: Topics) -> None:
    kafka.ensure(topics.checkpoints, TopicKind.RECORDS)
    kafka.ensure(topics.control, TopicKind.KEPT)
    kafka.ensure(topics.schemas, TopicKind.LATEST)
    kafka.ensure(topics.feedback, TopicKind.LATEST)


def _remember_copies(store: SqliteStore, tables: StreamTables, log_id: LogId) -> None:
    """Those of this log. A table whose shape the schema topic has lost needs a new copy."""
    for copy in [copy for copy in store.copies().values() if copy.log_id == log_id]:
        try:
            tables.remember_copy(copy)
        except UnknownSchema as lost:
            log.warning("shape of a table was lost, copying it again", table=str(copy.table), error=lost.reason)
            store.clear_for_copy(copy.table)


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
        session = plain_session(config.source)
    except psycopg.Error as error:
        raise source_error(error, "connecting") from error
    with session:
        yield session


def _published_table(
    config: CaptureConfig, session: psycopg.Connection, name: TableName, xid: int
) -> PublishedTable | None:
    try:
        wait_until_visible(session, xid)
        found = published_tables(session, config.source.publication, only=name)
    except psycopg.Error as error:
        raise source_error(error, f"reading the shape of {name}") from error
    return found[0] if found else None


def _catalog_types(session: psycopg.Connection, oids: Iterable[int]) -> CatalogTypes:
    try:
        return catalog_types(session, oids)
    except psycopg.Error as error:
        raise source_error(error, "reading the types of a table") from error


def _released(kafka: KafkaLog, topics: Topics, session: psycopg.Connection, config: CaptureConfig) -> Released:
    """What the slot has let go, and whether that is more than there was when the log began."""
    slot = find_slot(session, slot_name(config.pipeline))
    lsn = slot.confirmed_lsn if slot else NOWHERE
    first = next(checkpoints(kafka.read(topics.checkpoints, 0, 1)), None)
    began = first[1].lsn if first is not None else lsn
    return Released(lsn, anything=lsn > began)


def _wal_sender_timeout(session: psycopg.Connection) -> float:
    """In seconds; 0 is never."""
    row = session.execute("select setting::bigint from pg_settings where name = 'wal_sender_timeout'").fetchone()
    return row[0] / 1000 if row else 0.0


def _status_seconds(timeout: float, config: CaptureConfig) -> float:
    """Well inside wal_sender_timeout, whatever is configured."""
    wanted = config.tuning.status_interval.total_seconds()
    return min(wanted, timeout / 3) if timeout else wanted
