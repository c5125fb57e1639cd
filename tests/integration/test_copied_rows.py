"""The two ways to read a COPY give the same records and the same errors; the sender loses none, or says so."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import closing
from typing import TypeAlias

import psycopg
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pydantic import ByteSize

from capture.producer import BoundedProducer
from capture.publication import published_tables
from capture.replication_connection import session_dsn
from capture.table_sync.rows import copied_rows
from capture.transcode import choose
from capture.transcode.contract import Records
from capture.transcode.reference import snapshot_origin
from capture.wire import LibpqWire, PlainWire, encrypted, socket_of
from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from schemas.connections import KafkaConfig
from schemas.errors import LogError
from schemas.identifiers import Epoch, PipelineName, PublicationName, SchemaId
from schemas.lsn import Lsn
from schemas.pg_types.pg_type import ValueNotCarried
from stores.kafka_log import KafkaLog
from tests.support.processes import frozen

Record: TypeAlias = dict[str, bytes | None]
PUBLICATION = PublicationName("copied_rows")
CLOCK = 1_700_000_000_000_000_000


@pytest.fixture(scope="module")
def session(postgres: LocalPostgres) -> Iterator[psycopg.Connection]:
    name = f"d_{secrets.token_hex(4)}"
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute(f'create database "{name}"')
    with psycopg.connect(session_dsn(postgres.dsn(name)), autocommit=True) as session:
        session.execute("create table public.t (id int primary key, a text, b bytea)")
        session.execute(
            r"""insert into public.t select i, case i % 4 when 0 then null when 1 then E'tab\t new\n \\ ' || i
                                       when 2 then '' else repeat('x', i % 700) end, decode(md5(i::text), 'hex')
                  from generate_series(1, 20000) i"""
        )
        session.execute("update public.t set a = repeat('large', 200000) where id in (7, 8, 15000)")
        session.execute(f"create publication {PUBLICATION} for table public.t")
        yield session


def read_both_ways(session: psycopg.Connection, command: bytes) -> list[list[Record] | str]:
    (table,) = published_tables(session, PUBLICATION)
    found: list[list[Record] | str] = []
    for way in (lambda pg: PlainWire(socket_of(pg)), LibpqWire):
        dsn = session.info.dsn
        with closing(psycopg.connect(dsn, password=session.info.password, autocommit=True)) as mine:
            ids = (SchemaId(1), SchemaId(2))
            transcoder = choose.transcoder(PipelineName("p"), "d", table.schema, ids, Epoch(1), lambda: CLOCK)
            origin = snapshot_origin(Lsn(77), CLOCK // 1000)
            batches = copied_rows(way(mine.pgconn), command, transcoder, origin, lambda: None)
            try:
                read = list(batches)
            except psycopg.Error as error:
                found.append(str(error.sqlstate))
                continue
            records = [record for batch in read for record in batch.dicts]
            assert sum(batch.size for batch in read) == sum(len(record["value"] or b"") for record in records)
            assert origin.ordinal == len(records)
            assert mine.execute("select 1").fetchone() == (1,), "the session goes on"
            found.append(records)
    return found


def test_the_socket_and_libpq_give_the_same_records(session: psycopg.Connection) -> None:
    from_socket, through_libpq = read_both_ways(session, b"copy (select id, a, b from public.t) to stdout")

    assert len(from_socket) == 20_000
    assert from_socket == through_libpq


def test_an_empty_copy_ends(session: psycopg.Connection) -> None:
    assert read_both_ways(session, b"copy (select id, a, b from public.t where id < 0) to stdout") == [[], []]


@pytest.mark.parametrize(
    ("command", "state"),
    [
        (b"copy (select id, a, b from missing) to stdout", "42P01"),
        (b"copy (select id / (id - 19000), a, b from public.t order by id) to stdout", "22012"),
    ],
)
def test_an_error_before_or_amid_the_rows_is_the_servers(
    session: psycopg.Connection, command: bytes, state: str
) -> None:
    assert read_both_ways(session, command) == [state, state]


def test_a_connection_without_tls_is_known_as_such(session: psycopg.Connection) -> None:
    assert not encrypted(session.pgconn)


@pytest.fixture
def topic(kafka: LocalKafka) -> str:
    return make_topic(kafka, {})


def make_topic(kafka: LocalKafka, settings: dict[str, str]) -> str:
    name = f"copied-{secrets.token_hex(4)}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.create_topics([NewTopic(name, 1, 1, config=settings)]).values():
        future.result()
    return name


@pytest.fixture(params=["kernel", "reference"])
def either_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel is not installed both are the reference path."""
    monkeypatch.setenv(choose.KERNEL, request.param)


def records_of(*values: bytes, key: bytes | None = None) -> Records:
    records = choose.chosen_path().batch()
    for value in values:
        records.add(key, value)
    return records


@pytest.mark.usefixtures("either_path")
def test_more_than_may_wait_is_waited_for_and_arrives_once_and_in_order(kafka: LocalKafka, topic: str) -> None:
    config = KafkaConfig(bootstrap_servers=kafka.bootstrap_servers, max_record=ByteSize(1024**2))
    waits = []
    sender = BoundedProducer(config, ByteSize(1024**2), lambda: waits.append(1))
    most = 0

    for batch in range(20):
        records = records_of(*(b"%d" % (batch * 1_000 + i) + bytes(500) for i in range(1_000)))
        sender.send_batch(topic, records)
        most = max(most, len(sender._sender))
    sender.flush()

    assert waits
    assert most <= 2_000, "no more than two batches were under way"
    with KafkaLog(config) as log:
        values = [record.value or b"" for record in log.read(topic, 0, log.ends([topic])[topic][0])]
    assert [int(value.rstrip(b"\0")) for value in values] == list(range(20_000))


@pytest.mark.usefixtures("either_path")
def test_a_producer_that_waits_for_kafka_leaves_the_processor_to_others(kafka: LocalKafka, topic: str) -> None:
    config = KafkaConfig(bootstrap_servers=kafka.bootstrap_servers)
    until = float("inf")

    def alive() -> None:
        if time.monotonic() > until:
            raise TimeoutError

    sender = BoundedProducer(config, ByteSize(64 * 1024**2), alive)
    sender.send_batch(topic, records_of(b"the first"))
    sender.flush()
    records = records_of(*(secrets.token_bytes(500) for _ in range(20_000)))

    with frozen(kafka.pid):
        sender.send_batch(topic, records)
        began, until = time.process_time(), time.monotonic() + 2
        with pytest.raises(TimeoutError):
            sender.flush()
        spent = time.process_time() - began
    until = float("inf")
    sender.flush()

    assert spent < 0.6, "librdkafka looked without rest whether it may send the next batch"


@pytest.mark.usefixtures("either_path")
def test_a_record_that_is_too_large_for_the_producer_names_the_setting(kafka: LocalKafka, topic: str) -> None:
    config = KafkaConfig(bootstrap_servers=kafka.bootstrap_servers, max_record=ByteSize(1024**2))
    sender = BoundedProducer(config, ByteSize(1024**2), lambda: None)

    with pytest.raises(ValueNotCarried) as caught:
        sender.send_batch(topic, records_of(bytes(2 * 1024**2), key=b"k"))

    assert "kafka.max_record" in caught.value.solution


@pytest.mark.usefixtures("either_path")
def test_a_record_that_the_broker_refuses_fails_the_copy(kafka: LocalKafka) -> None:
    topic = make_topic(kafka, {"max.message.bytes": "1000"})
    sender = BoundedProducer(KafkaConfig(bootstrap_servers=kafka.bootstrap_servers), ByteSize(1024**2), lambda: None)

    sender.send_batch(topic, records_of(secrets.token_bytes(50_000)))

    with pytest.raises(LogError):
        sender.flush()
