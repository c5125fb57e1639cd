"""Somebody else writes to the topics of a pipeline: the table whose records they spoil is stopped with a reason, all
others go on, and no stage crashes, now or at its next start."""

from __future__ import annotations

import json

from confluent_kafka import Producer

from console.control import send_command
from schemas.control import Resync
from schemas.identifiers import SchemaId, TableName
from schemas.phases import Errored
from schemas.topics import Topics
from schemas.wire import header, schema_id_of
from tests.conftest import MakePipeline
from tests.support.command import penstock
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline
from tests.support.shared_log import shared_log

PRIVATE = b"private words"
"""In every foreign record that has any; must not be repeated."""
GARBAGE = (b"", b'{"private words": 1}', b"\0\0\0", None)
"""What has no header."""


def written_by_somebody(pipeline: Pipeline, topic: str, *values: bytes | None, key: bytes | None = None) -> None:
    producer = Producer({"bootstrap.servers": pipeline.config().kafka.bootstrap_servers})
    for value in values:
        producer.produce(topic, value, key)
    assert producer.flush(30) == 0


def last_record(pipeline: Pipeline, table: str) -> bytes:
    with shared_log(pipeline.config().kafka) as log:
        (record,) = log.last(pipeline.change_topic(table), 1)
    assert record.value is not None
    return record.value


def errored(pipeline: Pipeline, table: str) -> Errored | None:
    report = pipeline.report(table)
    return report.phase if report is not None and isinstance(report.phase, Errored) else None


def test_foreign_records_on_change_topics_stop_their_tables_alone_and_a_resync_heals_them(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline()
    tables = ("headless", "unknown", "empty", "nothing", "cut", "swapped", "forged")
    for table in ("good", *tables):
        pipeline.sql(f"create table {table} (id int primary key, a text)", f"insert into {table} values (1, 'copied')")
    pipeline.publish()
    pipeline.start()
    pipeline.settle("good", *tables)
    for table in ("good", *tables):
        pipeline.sql(f"insert into {table} values (2, 'before')")
    pipeline.assert_equal("good", *tables)

    own = last_record(pipeline, "forged")
    foreign: dict[str, bytes | None] = {
        "headless": b'{"private words": 1}',
        "unknown": header(SchemaId(1)) + PRIVATE,
        "empty": b"",
        "nothing": None,
        "cut": last_record(pipeline, "cut")[:-3],
        "swapped": last_record(pipeline, "good"),
        "forged": header(schema_id_of(own)) + b"\xff" * 12 + PRIVATE,
    }
    for table, value in foreign.items():
        written_by_somebody(pipeline, pipeline.change_topic(table), value)
    pipeline.sql(*[f"insert into {table} values (3, 'after')" for table in ("good", *tables)])

    for table in tables:
        held = eventually(lambda table=table: errored(pipeline, table), what=f"{table} to be stopped")
        assert f"Topic {pipeline.change_topic(table)} has a " in held.reason
        assert "at offset 1" in held.reason
        assert "penstock resync" in held.solution
        assert PRIVATE.decode() not in held.reason + held.solution
    eventually(lambda: pipeline.lake("select count(*) from public.good") == [(3,)], what="the other table to go on")
    assert pipeline.apply_error is None
    for table in tables:
        send_command(pipeline.config(), Resync(TableName("public", table)))
    eventually(lambda: not any(errored(pipeline, table) for table in tables), what="the new copies")
    pipeline.assert_equal("good", *tables)
    assert pipeline.stop_capture() == 0


def test_garbage_on_the_small_topics_is_passed_over_and_told_and_what_may_be_of_another_version_is_refused(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline()
    pipeline.sql("create table t (id int primary key)")
    pipeline.publish()
    pipeline.start()
    pipeline.settle("t")
    topics = Topics(pipeline.config().pipeline)
    other = header(SchemaId(1)) + PRIVATE

    for topic in (topics.control, topics.feedback, topics.schemas):
        written_by_somebody(pipeline, topic, *GARBAGE, other, key=b"somebody")
    written_by_somebody(pipeline, topics.checkpoints, *GARBAGE)
    pipeline.sql("insert into t values (1)")
    pipeline.assert_equal("t")
    assert pipeline.stop_capture() == 0
    pipeline.stop_apply()
    pipeline.start()
    pipeline.sql("insert into t values (2)", "create table later (id int primary key)")
    pipeline.assert_equal("t", "later")

    status = penstock("status", "-c", str(pipeline.file), "--json")
    assert status.returncode == 0, status.stderr
    assert "public.t" in json.loads(status.stdout)["destinations"]["lake"]["tables"]
    told = status.stderr + "".join(log.read_text() for log in pipeline.folder.glob("capture*.log"))
    for topic in (topics.control, topics.feedback, topics.schemas, topics.checkpoints):
        assert f'"topic": "{topic}"' in told
    assert PRIVATE.decode() not in told

    written_by_somebody(pipeline, topics.checkpoints, other)
    pipeline.wait_for_end_of_apply()
    assert pipeline.apply_error is not None
    assert f"It stands on topic {topics.checkpoints} at offset " in pipeline.apply_error.reason
    assert pipeline.stop_capture() == 0
    pipeline.start_capture()
    refused = pipeline.refused()
    assert f"It stands on topic {topics.checkpoints} at offset " in refused.reason
    assert PRIVATE.decode() not in pipeline.apply_error.reason + refused.reason
