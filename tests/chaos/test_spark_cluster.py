"""Apply on a cluster of Spark: executors in processes of their own read the topics and write to the destination."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from tests.contract.destination_places import PostgresPlace
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline
from tests.support.processes import alive
from tests.support.spark_cluster import ENVIRONMENT, SparkCluster

pytestmark = pytest.mark.further

TABLES = ("notes", "orders", "events")
SCHEMA = (
    "create table notes (id int primary key, big text, n int)",
    "alter table notes alter column big set storage external",
    "create table orders (id int primary key, at timestamptz, tags text[])",
    "create table events (what text)",
    "alter table events replica identity full",
    "insert into notes select i, repeat('long ', 2000) || i, 0 from generate_series(1, 300) i",
    "insert into orders select i, now(), array['a', null] from generate_series(1, 3000) i",
    "insert into events select 'same' from generate_series(1, 10)",
)
UNSENT = ("update notes set n = n + 1", "update notes set id = id + 1000 where id % 3 = 0")
"""Values that Postgres stores apart are not sent again: Spark's executors fold these, and write them."""
LATER = (
    "update notes set n = n + 1, id = id + 5000 where id % 7 = 0",
    "delete from orders where id % 5 = 0",
    "update orders set tags = null where id % 4 = 0",
    "delete from events where ctid in (select ctid from events limit 4)",
)
HOLD = """
    create function public.hold() returns trigger language plpgsql as
        $$ begin perform pg_advisory_xact_lock_shared(4711); return null; end $$;
    create function public.hold_staged() returns event_trigger language plpgsql as $$
        declare made record;
        begin
            for made in select * from pg_event_trigger_ddl_commands() where schema_name = 'penstock' loop
                execute format('create trigger hold after insert on %s execute function public.hold()',
                               made.object_identity);
            end loop;
        end $$;
    create event trigger hold_staged on ddl_command_end when tag in ('CREATE TABLE')
        execute function public.hold_staged();
"""
"""Whoever writes to a staging table waits after its last row, before its commit, for as long as lock 4711 is held."""
HELD = "select count(*) from pg_locks where locktype = 'advisory' and objid = 4711 and not granted"


@pytest.fixture
def mirror(postgres: LocalPostgres) -> PostgresPlace:
    return PostgresPlace(postgres)


@pytest.fixture
def cluster() -> Iterator[SparkCluster]:
    with SparkCluster() as running:
        yield running


@pytest.fixture
def pipeline(
    postgres: LocalPostgres, kafka: LocalKafka, cluster: SparkCluster, mirror: PostgresPlace, tmp_path: Path
) -> Iterator[Pipeline]:
    settings = "\n".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in cluster.settings.items())
    toml = f'[apply]\nmaster = "{cluster.url}"\ndriver_memory = "1g"\n[apply.spark]\n{settings}'
    with Pipeline(f"t{secrets.token_hex(4)}", postgres, kafka, None, tmp_path, toml) as made:
        duckdb = f'type = "duckdb"\n            path = "{made.lake_path}"'
        text = made.file.read_text()
        assert duckdb in text
        postgres_section = f'type = "postgres"\ndsn = "{mirror.dsn}"\nlock_timeout = "60s"'
        made.file.write_text(text.replace(duckdb, postgres_section))
        made.sql(*SCHEMA)
        made.publish()
        yield made


@contextmanager
def writers_held(mirror: PostgresPlace) -> Iterator[psycopg.Connection]:
    with psycopg.connect(mirror.dsn, autocommit=True) as session:
        session.execute(HOLD)
        session.execute("select pg_advisory_lock(4711)")
        yield session
        session.execute("drop event trigger hold_staged")


def assert_equal(pipeline: Pipeline, mirror: PostgresPlace) -> None:
    pipeline.settle(*TABLES)
    with psycopg.connect(mirror.dsn) as there:
        for table in TABLES:
            query = f"select t::text from public.{table} t order by 1"
            assert there.execute(query).fetchall() == pipeline.source.execute(query).fetchall(), table


def test_a_worker_that_is_killed_while_its_executor_writes_loses_and_repeats_nothing(
    pipeline: Pipeline, mirror: PostgresPlace, cluster: SparkCluster
) -> None:
    pipeline.start_capture()
    pipeline.start_apply_process(**ENVIRONMENT)
    assert_equal(pipeline, mirror)

    with writers_held(mirror) as session:
        with pipeline.source.transaction():
            pipeline.sql(*UNSENT)
        eventually(lambda: session.execute(HELD).fetchone() == (2,), what="both executors to be within their writes")
        killed = cluster.kill_a_worker()
        eventually(lambda: not alive(killed), what="the executor to be gone")

    assert_equal(pipeline, mirror)
    with pipeline.source.transaction():
        pipeline.sql(*LATER)
    assert_equal(pipeline, mirror)
