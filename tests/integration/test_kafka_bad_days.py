"""What operators, and time, do to the topics of a pipeline: it goes on exactly, or says what to do, and loses nothing.

The others of these days: test_kafka_cluster.py, test_kafka_secured.py, and the table in docs/how-to/kafka.md.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from console.control import send_command
from console.local_stack.kafka import LocalKafka
from schemas.connections import KafkaConfig
from schemas.control import Resync
from schemas.identifiers import TableName
from schemas.topics import Topics
from stores.kafka_errors import TopicExists
from stores.kafka_log import KafkaLog, TopicKind
from tests.support.captured import MakeCaptured
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline
from tests.support.processes import frozen
from tests.support.retention import expire

MANY = 16
"""So many partitions that a record without a place of its own would hardly come to the first by chance."""
LOOKS_OFTEN = {
    "PENSTOCK_KAFKA__CLIENT": json.dumps(
        {"topic.metadata.refresh.interval.ms": "500", "topic.metadata.propagation.max.ms": "500"}
    )
}
"""A client that hears of a deleted topic soon; by default after half a minute."""


def admin(kafka: LocalKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})


def topics_of(pipeline: Pipeline) -> Topics:
    return Topics(pipeline.config().pipeline)


def test_a_new_topic_is_waited_for_until_a_broker_has_heard_of_it(
    kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found in CI: capture ended because the topic that it had made a second before did not exist."""
    topics, hidden = KafkaLog.topics, [1, 2, 3]
    monkeypatch.setattr(KafkaLog, "topics", lambda log: topics(log) - ({"late"} if hidden and hidden.pop() else set()))

    with KafkaLog(KafkaConfig(bootstrap_servers=kafka.bootstrap_servers)) as log:
        log.create("late", TopicKind.RECORDS)

    assert not hidden


def test_a_topic_whose_making_is_not_answered_is_asked_for_again(
    kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found in CI: the client waited a minute for a controller that it knew, and had never asked it."""
    monkeypatch.setattr("stores.kafka_log.ASK_SECONDS", 1.0)
    config = KafkaConfig(bootstrap_servers=kafka.bootstrap_servers)
    with KafkaLog(config) as log, ThreadPoolExecutor(1) as pool:
        log.cluster()
        with frozen(kafka.pid):
            making = pool.submit(log.create, "unanswered", TopicKind.RECORDS)
            with pytest.raises(TimeoutError):
                making.result(2.5)

        with suppress(TopicExists):  # made by the question without an answer
            making.result(30)

        # The controller has it; the broker that is asked for its topics hears of it a moment later.
        eventually(lambda: "unanswered" in log.topics(), seconds=30, what="a topic of that name")


def test_partitions_that_somebody_adds_stay_empty_and_nothing_is_missed(
    captured: MakeCaptured, kafka: LocalKafka
) -> None:
    pipeline, log = captured("create table t (id int primary key)", publish="for table t")
    log.assert_rows("t")
    topics = topics_of(pipeline)
    all_of_them = [topics.checkpoints, topics.schemas, topics.control, topics.feedback, pipeline.change_topic("t")]

    asked = admin(kafka)
    for future in asked.create_partitions([NewPartitions(topic, MANY) for topic in all_of_them]).values():
        future.result(30)
    assert pipeline.stop_capture() == 0
    pipeline.start_capture()  # its clients know of the partitions
    for number in range(5):
        pipeline.sql(f"alter table t add c{number} text", f"insert into t values ({number})")
        log.assert_rows("t")
    copies = len(log.generations("t"))
    send_command(pipeline.config(), Resync(TableName("public", "t")))

    eventually(lambda: len(log.generations("t")) > copies, what="the copy that a command asked for")
    log.assert_rows("t")


def test_a_change_topic_deleted_under_capture_ends_it_and_the_next_one_copies_its_table(
    captured: MakeCaptured, kafka: LocalKafka
) -> None:
    pipeline, log = captured(
        "create table t (id int primary key)", "create table u (id int)", publish="for table t, u", **LOOKS_OFTEN
    )
    log.assert_rows("t")
    pipeline.sql("insert into t values (1)", "insert into u values (1)")
    log.assert_rows("t")  # by the stream: a topic that nobody has written to is made anew without a word
    topic = pipeline.change_topic("t")

    delete(kafka, topic)
    pipeline.sql("insert into t values (2)", "insert into u values (2)")
    refusal = pipeline.refused()
    pipeline.sql("insert into t values (3)")
    pipeline.start_capture()

    assert topic in refusal.reason
    assert "Start capture again" in refusal.solution
    for table in ("t", "u"):
        log.assert_rows(table)
    assert [len(log.generations(table)) for table in ("t", "u")] == [2, 1]


def test_a_log_deleted_under_capture_ends_it_and_the_next_one_copies_every_table(
    captured: MakeCaptured, kafka: LocalKafka
) -> None:
    pipeline, log = captured("create table t (id int primary key)", publish="for table t", **LOOKS_OFTEN)
    pipeline.sql("insert into t values (1)")
    log.assert_rows("t")
    before, topic = log.generations("t"), topics_of(pipeline).checkpoints

    delete(kafka, topic)
    pipeline.forget_checkpoints()
    pipeline.sql("insert into t values (2)")
    refusal = pipeline.refused()
    pipeline.sql("delete from t where id = 1")
    pipeline.start_capture()

    assert topic in refusal.reason
    assert "Start capture again" in refusal.solution
    log.assert_rows("t")
    assert log.generations("t")[0] > before[-1]


def delete(kafka: LocalKafka, topic: str) -> None:
    asked = admin(kafka)
    asked.delete_topics([topic])[topic].result(30)
    eventually(lambda: topic not in asked.list_topics(timeout=10).topics, what="the end of the topic")


def test_a_log_that_retention_has_taken_while_capture_was_away_costs_new_copies_and_no_row(
    captured: MakeCaptured,
) -> None:
    pipeline, log = captured("create table t (id int primary key)", publish="for table t")
    pipeline.sql("insert into t values (1)")
    log.assert_rows("t")
    before = log.generations("t")
    assert pipeline.stop_capture() == 0
    pipeline.sql("insert into t values (2)", "delete from t where id = 1")

    checkpoints = topics_of(pipeline).checkpoints
    with KafkaLog(pipeline.config().kafka) as kafka_log:
        expire(pipeline.config(), checkpoints, kafka_log.ends([checkpoints])[checkpoints][0])
    pipeline.forget_checkpoints()
    pipeline.start_capture()

    log.assert_rows("t")
    assert log.generations("t")[-1] > before[-1]


SOON_SILENT = {"PENSTOCK_KAFKA__PATIENCE": "1s", "PENSTOCK_CAPTURE__IDLE_INTERVAL": "2s"}
"""After a checkpoint nobody asks the broker for two seconds, so that the connection to Postgres ends in between."""


def test_a_broker_that_is_silent_while_an_epoch_opens_is_waited_for(captured: MakeCaptured, kafka: LocalKafka) -> None:
    pipeline, log = captured("create table t (id int primary key)", publish="for table t", **SOON_SILENT)
    log.assert_rows("t")

    with frozen(kafka.pid):
        pipeline.sql("select pg_terminate_backend(active_pid) from pg_replication_slots where active")
        pipeline.sql("insert into t values (1)")
        eventually(lambda: tries(pipeline) > 1, what="a second try")

    log.assert_rows("t")
    assert pipeline.capture is not None
    assert pipeline.capture.process.poll() is None


def test_capture_ends_when_told_to_while_it_waits_for_a_silent_broker(
    captured: MakeCaptured, kafka: LocalKafka
) -> None:
    pipeline, log = captured("create table t (id int primary key)", publish="for table t", **SOON_SILENT)
    log.assert_rows("t")

    with frozen(kafka.pid):
        pipeline.sql("select pg_terminate_backend(active_pid) from pg_replication_slots where active")
        eventually(lambda: tries(pipeline) > 0, what="a try to open the next epoch")
        code = pipeline.stop_capture()

    assert code == 0


def tries(pipeline: Pipeline) -> int:
    """To open the next epoch, which the broker did not answer."""
    lines = [line for line in pipeline.capture_log().splitlines() if '"waiting to open the next epoch"' in line]
    return sum("No Kafka broker answered" in line for line in lines)


def test_settings_that_make_no_client_are_refused_with_their_name(captured: MakeCaptured) -> None:
    pipeline, _ = captured(
        "create table t (id int primary key)",
        publish="for table t",
        PENSTOCK_KAFKA__CLIENT=json.dumps({"sasl.mechanisn": "PLAIN"}),
    )

    refusal = pipeline.refused()

    assert "sasl.mechanisn" in refusal.reason
    assert "[kafka.client]" in refusal.solution
    assert "Traceback" not in pipeline.capture_log()


def test_tls_to_a_broker_that_speaks_none_is_told_as_that(captured: MakeCaptured) -> None:
    pipeline, _ = captured(
        "create table t (id int primary key)",
        publish="for table t",
        PENSTOCK_KAFKA__CLIENT=json.dumps({"security.protocol": "SSL"}),
        PENSTOCK_KAFKA__PATIENCE="2s",
    )

    refusal = pipeline.refused()

    assert "PLAINTEXT broker listener?" in refusal.reason
    assert "Correct `security.protocol`" in refusal.solution
