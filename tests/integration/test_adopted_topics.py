"""Topics of a real Debezium connector, Avro with a registry, become rows in DuckDB through `penstock adopt` and apply.

The tests share one connector and one pipeline, and go on with what the ones before have left.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb
import psycopg
import pytest
from psycopg.rows import dict_row

from capture.checkpoints import last_accepted
from console.control import send_command
from console.demo.proof import prove
from console.local_stack.kafka import LocalKafka
from schemas.checkpoint import Checkpoint
from schemas.control import Resync
from schemas.epochs import EpochRule
from schemas.failpoints import VARIABLE
from schemas.identifiers import TableName
from schemas.topics import Topics
from tests.conftest import MakePipeline
from tests.support.connect import SOURCES, Worker, avro_converter, connect
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline
from tests.support.shared_log import shared_log

pytestmark = pytest.mark.further

T = TableName("public", "t")
TABLES = (
    "create type mood as enum ('calm', 'glad')",
    """
    create table t (
        id int, part text, big bigint, small smallint, ratio double precision, real real, name text,
        note varchar(20), ok boolean, raw bytea, price numeric(10, 2), free numeric, day date, noon time,
        stamp timestamp, brief timestamp(3), moment timestamptz, mark uuid, doc jsonb, tags text[], numbers int[],
        feeling mood, long text, body bytea, many int[], primary key (id, part)
    )
    """,
    "alter table t alter long set storage external, alter body set storage external, alter many set storage external",
    "create table bag (n int)",
)
ROW = """
    'a', (2 ^ 40)::bigint, 7, 0.1, 0.25, 'naïve', 'short', true, '\\x00ff'::bytea, -12.30,
    1234567890123456789012.000001, '1600-02-29'::date, '12:30:00.000001'::time,
    '2026-02-28 12:30:00.000001'::timestamp, '2026-02-28 12:30:00.001'::timestamp(3),
    '2026-02-28 12:30:00.000001+02'::timestamptz, '6f1c1d6e-0000-4000-8000-0000000000aa'::uuid,
    '{"a": [1, null]}'::jsonb, array['x', null, 'ü'], array[1, null, -3],
    'glad'::mood, repeat('long', 1000), decode(repeat('00ff', 2000), 'hex'),
    array(select n from generate_series(1, 1000) n)
"""
CONNECTOR = "adopted"


@dataclass(frozen=True)
class Adopted:
    pipeline: Pipeline
    worker: Worker
    topic: str

    def start(self, **environment: str) -> None:
        self.pipeline.capture = self.pipeline._stage("adopt", environment)

    def assert_equal(self) -> None:
        """What is committed now arrives."""
        try:
            eventually(self._is_equal, seconds=90, what="equal tables")
        except AssertionError:
            print(self.log().read_text()[-4000:])  # noqa: T201 -- shown by pytest when a test fails
            raise
        assert self.worker.running()

    def _is_equal(self) -> bool:
        dsn = self.pipeline._postgres.dsn(self.pipeline.name)
        with psycopg.connect(dsn, row_factory=dict_row) as source, suppress(duckdb.BinderException):
            return all(proof.equal for proof in prove(source, self.pipeline.lake_path, [T]))
        return False  # apply, in this process, has the file open just now

    def log(self) -> Path:
        """Of the newest adopt."""
        return max(self.pipeline.folder.glob("adopt*.log"), key=lambda log: log.stat().st_mtime)

    def assert_each_record_is_in_one_window(self) -> None:
        """The checkpoints count as many changes as Debezium's topic has, tombstones left out."""
        eventually(lambda: self._counted() == self._written(), what="as many changes as records")

    def _written(self) -> int:
        with shared_log(self.pipeline.config().kafka) as log:
            return sum(record.value is not None for record in log.read_all(self.topic))

    def _counted(self) -> int:
        topics, rule = Topics(self.pipeline.config().pipeline), EpochRule()
        with shared_log(self.pipeline.config().kafka) as log:
            read = [Checkpoint.decode(record.value or b"") for record in log.read_all(topics.checkpoints)]
        moved = [moved for each in read if rule.accepts(each) for moved in each.moved]
        return sum(each.rows for each in moved if each.topic == topics.changes(T))


@pytest.fixture(scope="module")
def adopted(make_shared_pipeline: MakePipeline, kafka: LocalKafka, registry: str) -> Iterator[Adopted]:
    """A connector that has begun with a copy of the tables, `adopt` and apply."""
    pipeline = make_shared_pipeline()
    prefix = f"debezium_{pipeline.name}"
    pipeline.sql(
        *TABLES,
        f"insert into t select i, {ROW} from generate_series(1, 10) i",
        "insert into t (id, part) values (11, 'nulls')",
        "insert into bag values (1)",
    )
    section = f'[adopt]\ntopics = ["{prefix}.public.*"]\nschema_registry = "{registry}"\n[kafka]'
    pipeline.file.write_text(re.sub(r"\[source\].*\[kafka\]", section, pipeline.file.read_text(), flags=re.DOTALL))
    with connect(kafka, connector(pipeline, prefix, registry), plugins=SOURCES) as worker:
        here = Adopted(pipeline, worker, f"{prefix}.public.t")
        here.start()
        pipeline.start_apply()
        eventually(lambda: pipeline.has_topic(here.topic), seconds=240, what="Debezium's copy of the table")
        eventually(pipeline.lake_path.exists, what="a table")
        yield here


def connector(pipeline: Pipeline, prefix: str, registry: str) -> dict[str, str]:
    source = pipeline.source.info
    return {
        "name": CONNECTOR,
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": source.host,
        "database.port": str(source.port),
        "database.user": source.user,
        "database.password": source.password,
        "database.dbname": source.dbname,
        "plugin.name": "pgoutput",
        "slot.name": f"penstock_{pipeline.name}",  # which the pipeline of the test drops
        "topic.prefix": prefix,
        "table.include.list": "public.t,public.bag",
        "skipped.operations": "none",
        "poll.interval.ms": "50",
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
        **avro_converter(registry),
    }


def test_rows_that_debezium_copied_and_changes_of_every_kind_arrive(adopted: Adopted) -> None:
    adopted.assert_equal()

    adopted.pipeline.sql(
        f"insert into t select i, {ROW} from generate_series(12, 20) i",
        "update t set name = 'other', price = null where id % 3 = 0",  # leaves values that are TOASTed, from 2 kB on
        "delete from t where id in (5, 10, 20)",
        "update t set part = 'moved' where id = 1",
        "update t set id = 200, name = 'moved' where id = 2",
        "update t set long = repeat('z', 3000), body = null where id = 4",
        "update t set doc = '{}', tags = '{}', name = '' where id = 11",
    )

    adopted.assert_equal()
    adopted.assert_each_record_is_in_one_window()


def test_a_truncate_empties_the_table_also_as_the_first_record_that_adopt_reads(adopted: Adopted) -> None:
    pipeline = adopted.pipeline
    pipeline.stop_capture()
    pipeline.sql("truncate t")
    adopted.start()
    adopted.assert_equal()

    pipeline.sql(f"insert into t select i, {ROW} from generate_series(1, 20) i")

    adopted.assert_equal()


def test_a_killed_adopt_and_an_apply_that_starts_again_lose_nothing_and_double_nothing(adopted: Adopted) -> None:
    pipeline = adopted.pipeline
    pipeline.stop_apply()
    pipeline.stop_capture()
    written = adopted._written()
    pipeline.sql(
        "update t set name = 'while away' where id <= 5",
        "update t set id = 300 where id = 6",
        "delete from t where id = 7",
    )
    eventually(lambda: adopted._written() == written + 8, what="Debezium's records")

    # Kafka has all records of the window, and no checkpoint says so.
    adopted.start(**{VARIABLE: "checkpoint.writing=kill", "PENSTOCK_CAPTURE__IDLE_INTERVAL": "1h"})
    assert pipeline.capture is not None
    assert pipeline.capture.process.wait(60) == -signal.SIGKILL
    adopted.start()
    pipeline.start_apply()

    adopted.assert_equal()
    adopted.assert_each_record_is_in_one_window()


def test_a_connector_that_forgot_how_far_it_was_copies_anew_and_that_is_told(adopted: Adopted) -> None:
    pipeline = adopted.pipeline
    adopted.assert_equal()
    pipeline.sql("update t set name = 'seen' where id = 1")
    reached = pipeline.wal_lsn()
    pipeline.sql("update t set name = 'seen as well' where id = 1")
    eventually(lambda: pipeline.confirmed_lsn() >= reached, what="the slot to go on")
    adopted.worker.stop(CONNECTOR)
    pipeline.sql(
        "update t set name = 'unseen', small = small + 1 where id <= 3",
        f"insert into t select i, {ROW} from generate_series(30, 32) i",
        "delete from t where id = 31",  # a row that was there before would stay: Debezium does not tell
    )

    adopted.worker.begin(CONNECTOR)

    adopted.assert_equal()
    assert "rows that were deleted meanwhile stay" in adopted.log().read_text()


def test_columns_that_come_and_go_are_followed(adopted: Adopted) -> None:
    adopted.pipeline.sql(
        "alter table t add later text, drop note",
        "insert into t (id, part, later) values (400, 'b', 'column')",
        "update t set later = 'set' where id = 2",
    )

    adopted.assert_equal()


def test_a_resync_reads_the_topic_from_its_beginning(adopted: Adopted) -> None:
    pipeline = adopted.pipeline
    adopted.assert_equal()
    generation = pipeline.generation("t")

    send_command(pipeline.config(), Resync(T))

    eventually(lambda: pipeline.generation("t") > generation, what="a new generation")
    eventually(lambda: pipeline.known_phase("t") == "Ready", what="a table that is ready again")
    adopted.assert_equal()


def test_a_table_without_a_key_is_left_out_with_a_reason_and_the_others_go_on(adopted: Adopted) -> None:
    said = [json.loads(line) for line in adopted.log().read_text().splitlines() if '"table stopped"' in line]

    assert [each["topic"].rpartition(".")[2] for each in said] == ["bag"]
    assert "has no key" in said[0]["error"]
    assert "message.key.columns" in said[0]["solution"]


def test_a_column_of_another_type_stops_its_table_and_says_why(adopted: Adopted) -> None:
    pipeline = adopted.pipeline

    pipeline.sql("alter table t alter small type int", "insert into t (id, part) values (500, 'c')")

    eventually(lambda: pipeline.known_phase("t") == "Errored", what="a table that stopped")
    report = pipeline.report("t")
    assert report is not None
    assert "changed in a way that is not followed" in report.phase.reason  # type: ignore[union-attr]
    with shared_log(pipeline.config().kafka) as log:
        last = last_accepted(log, Topics(pipeline.config().pipeline).checkpoints)
    assert last is not None
    assert adopted.topic not in last[1].ends, "the next start begins it anew"
