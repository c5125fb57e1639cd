"""Our change topics are read by Kafka Connect: Debezium's JDBC sink, with and without `ExtractNewRecordState`."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import psycopg
import pytest

from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from tests.support.captured import MakeCaptured
from tests.support.connect import Worker, avro_converter, connect
from tests.support.eventually import eventually

pytestmark = pytest.mark.further

TABLE = """
    create table t (
        id int primary key, big bigint, small smallint, ratio double precision, name text, ok boolean, raw bytea,
        price numeric(10, 2), day date, noon time, stamp timestamp, moment timestamptz, mark uuid, doc jsonb
    )
"""
ROW = """
    (2 ^ 40)::bigint, 7, 0.25, 'naïve', true, '\\x00ff'::bytea, 12.30, '2026-02-28'::date, '12:30:00.000001'::time,
    '2026-02-28 12:30:00.000001'::timestamp, '2026-02-28 12:30:00.000001+00'::timestamptz,
    '6f1c1d6e-0000-4000-8000-0000000000aa'::uuid, '{"a": 1}'::jsonb
"""
COLUMNS = "id, big, small, ratio, name, ok, raw, price, day, noon, stamp, moment, mark, doc, later"
SENT = (
    COLUMNS.replace("price", "price::text").replace("moment", "moment at time zone 'UTC'").replace("doc", "doc::text")
)
"""What Connect has no exact type for arrives as text, and a moment as what clocks show in UTC."""
UNWRAP = {"transforms": "unwrap", "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState"}


@pytest.fixture
def sink(postgres: LocalPostgres) -> Iterator[psycopg.Connection]:
    name = f"sink{secrets.token_hex(4)}"
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute(f'create database "{name}"')
        with psycopg.connect(postgres.dsn(name), autocommit=True) as database:
            yield database
        admin.execute(f'drop database "{name}" with (force)')


def jdbc_sink(name: str, topic: str, sink: psycopg.Connection, registry: str) -> dict[str, str]:
    to = sink.info
    return {
        "name": name,
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "topics": topic,
        "connection.url": f"jdbc:postgresql://{to.host}:{to.port}/{to.dbname}",
        "connection.username": to.user,
        "connection.password": to.password,
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "primary.key.mode": "record_key",
        "schema.evolution": "basic",
        "collection.name.format": name,
        **avro_converter(registry),
    }


def test_a_jdbc_sink_has_the_rows_of_the_source_unwrapped_and_as_they_are(
    captured: MakeCaptured, kafka: LocalKafka, registry: str, sink: psycopg.Connection
) -> None:
    pipeline, log = captured(TABLE, publish="for table t", PENSTOCK_KAFKA__SCHEMA_REGISTRY=registry)
    log.assert_rows("t")
    pipeline.sql(
        f"insert into t select i, {ROW} from generate_series(1, 20) i",
        "insert into t (id) values (21)",
        "update t set name = 'other', price = null where id % 3 = 0",
        "delete from t where id % 5 = 0",
        "update t set id = 100 where id = 1",
        "alter table t add later text",
        "insert into t (id, later) values (22, 'column')",
    )
    log.assert_reached()
    topic = pipeline.change_topic("t")

    tables = ("as_it_is", "unwrapped")
    plain, unwrapped = (jdbc_sink(table, topic, sink, registry) for table in tables)
    with connect(kafka, plain, {**unwrapped, **UNWRAP}) as worker:
        for table in tables:
            eventually(lambda table=table: _has_the_last_row(sink, table, worker), what=f"the last row of {table}")

    expected = pipeline.source.execute(f"select {SENT} from t order by id").fetchall()
    for table in tables:
        assert sink.execute(f"select {COLUMNS} from {table} order by id").fetchall() == expected


def _has_the_last_row(sink: psycopg.Connection, table: str, worker: Worker) -> bool:
    assert worker.running(), "Connect has ended"
    try:
        return sink.execute(f"select from {table} where later is not null").rowcount == 1
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
        return False
