"""What releases before left behind is read by this one: their stores, their topics byte by byte, their destinations.

Capture cannot go on with a fixture, for that would take the server that it captured: its stores and its log are read as
its start reads them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from apply_spark.destinations.clickhouse_state import State
from apply_spark.destinations.duckdb import DuckDbDestination
from apply_spark.destinations.plans import Plan
from apply_spark.progress import Progress
from capture.checkpoints import last_accepted
from capture.table_sync.memory import CopyMemory
from console.config import load
from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from console.pipeline_state import read_feedback
from schemas.connections import KafkaConfig
from schemas.control import Control
from schemas.feedback import Feedback
from schemas.identifiers import DestinationName, PipelineName, TableName
from schemas.lsn import Lsn
from schemas.phases import Ready
from schemas.topics import Topics
from stores.cached import DurableRows
from stores.kafka_log import KafkaLog, TopicKind
from stores.postgres import RowsInPostgres
from stores.relations import RELATIONS
from stores.schema_topic import SchemaTopic
from stores.sqlite import RowsInSqlite, SqliteStore
from tests.support.destinations import RunningApply
from tests.support.eventually import eventually
from tests.support.shared_log import shared_log
from tests.upgrade.make import contents
from tests.upgrade.release import ABOUT, LAKE, PROGRESS, RELEASES, STATE, STORE, Release

LAKE_NAME, FRESH_NAME = DestinationName("lake"), DestinationName("fresh")


@pytest.fixture(scope="module", params=RELEASES, ids=lambda path: path.stem)
def release(request: pytest.FixtureRequest) -> Release:
    return Release(request.param)


@pytest.fixture(scope="module")
def topics(release: Release, kafka: LocalKafka) -> Iterator[Topics]:
    """The topics of the release, on the broker of this run."""
    config = KafkaConfig(bootstrap_servers=kafka.bootstrap_servers)
    found = release.topics()
    with KafkaLog(config) as log:
        log.ensure_all(found, TopicKind.RECORDS)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
        for topic, records in found.items():
            for key, value in records:
                producer.produce(topic, value, key)
        assert producer.flush(60) == 0
        yield Topics(PipelineName(release.json(ABOUT)["pipeline"]))
        log.delete(found)


def kept(rows: DurableRows) -> dict[str, dict[Any, Any]]:
    """All that a store holds, as values."""
    with rows.writing():
        return {relation.name: dict(map(relation.read, rows.rows(relation))) for relation in RELATIONS}


def test_the_stores_of_a_release_are_read_and_hold_the_same(
    release: Release, postgres: LocalPostgres, tmp_path: Path
) -> None:
    pipeline = PipelineName(release.json(ABOUT)["pipeline"])
    database = f"t{secrets.token_hex(4)}"
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute(f'create database "{database}"')
    _fill(postgres.dsn(database), release.json(STORE))

    with closing(RowsInSqlite(release.file(STATE, tmp_path))) as sqlite:
        in_sqlite = kept(sqlite)
    with closing(RowsInPostgres(postgres.dsn(database), pipeline)) as rows:
        in_postgres = kept(rows)

    assert in_sqlite == in_postgres
    assert {table.name for table in in_sqlite["copies"]} == {"orders", "documents", "bag", "waiting", "archive"}


def _fill(dsn: str, store: dict[str, Any]) -> None:
    """A store as that release had made it."""
    with psycopg.connect(dsn) as session:
        session.execute("create schema penstock")
        session.execute(
            "create table penstock.store_migrations "
            "(number integer primary key, name text not null, applied_at timestamptz not null default now())"
        )
        for number, name, script in store["migrations"]:
            session.execute(script.encode())
            session.execute("insert into penstock.store_migrations (number, name) values (%s, %s)", [number, name])
        for table, rows in store["tables"].items():
            with session.cursor().copy(f"copy penstock.{table} from stdin") as into:
                into.write(rows)


def test_the_log_of_a_release_is_read_as_capture_reads_it_at_its_start(
    release: Release, topics: Topics, kafka: LocalKafka, tmp_path: Path
) -> None:
    config = KafkaConfig(bootstrap_servers=kafka.bootstrap_servers)
    with SqliteStore(release.file(STATE, tmp_path)) as store, shared_log(config) as log:
        last = last_accepted(log, topics.checkpoints)
        told = [Feedback.decode(record.value or b"") for record in log.read_all(topics.feedback)]
        commands = [Control.decode(record.value or b"") for record in log.read_all(topics.control)]
        schemas = SchemaTopic(config, log, topics.schemas)
        shapes = {table: schemas.get(copy.schema_id).table for table, copy in store.copies().items()}
        left = CopyMemory(store).interrupted(TableName("public", "archive"))

        assert last is not None
        assert str(last[1].lsn) == release.json(ABOUT)["lsn"]
        assert {copy.log_id for copy in store.copies().values()} == {last[1].log_id}
        assert {table: shape.name for table, shape in shapes.items() if shape} == {table: table for table in shapes}
        assert left is not None
        assert 0 < len(left.finished) < len(left.ranges)
    assert {feedback.destination for feedback in told} == {LAKE_NAME, "proof"}
    assert len(commands) == 6


def test_progress_is_read_wherever_a_destination_keeps_it(release: Release, tmp_path: Path) -> None:
    kept_as = release.json(PROGRESS)
    destination = DuckDbDestination(LAKE_NAME, {"path": release.file(LAKE, tmp_path)})
    progress = destination.startup()
    destination.shutdown()

    assert progress is not None
    assert progress.tables[TableName("public", "waiting")].paused
    assert Progress.restored(tuple(kept_as["stored"][0]), kept_as["stored"][1][2]) == progress
    assert Plan.from_json(kept_as["plan"]).after == progress
    state = State.from_json(kept_as["clickhouse"])
    assert state.progress == progress
    assert set(state.mirrors) == set(progress.tables)


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("name", [FRESH_NAME, LAKE_NAME])
def test_topics_are_applied_whole_and_a_half_done_destination_goes_on(
    name: DestinationName, release: Release, kafka: LocalKafka, spark: SparkSession, tmp_path: Path
) -> None:
    about = release.json(ABOUT)
    path = tmp_path / "fresh.duckdb" if name == FRESH_NAME else release.file(LAKE, tmp_path)
    file = tmp_path / "penstock.toml"
    file.write_text(
        f"""
        [pipeline]
        name = "{about["pipeline"]}"
        [source]
        dsn = "postgresql://nobody@127.0.0.1:1/none"
        publication = "none"
        [kafka]
        bootstrap_servers = "{kafka.bootstrap_servers}"
        [destinations.{name}]
        type = "duckdb"
        path = "{path}"
        """
    )
    config = load(file)

    with RunningApply(SimpleNamespace(config=lambda: config), name, spark) as applied, shared_log(config.kafka) as log:

        def is_there() -> bool:
            applied.raise_error()
            told = read_feedback(log, config.pipeline, [name]).get(name)
            return told is not None and {
                report.table.name
                for report in told.tables
                if isinstance(report.phase, Ready) and report.lsn >= Lsn.parse(about["lsn"])
            } == set(about["rows"])

        eventually(is_there, what="every table whose copy is finished")

    assert {table: contents(path, table) for table in about["rows"]} == about["rows"]
