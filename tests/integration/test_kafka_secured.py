"""A broker with TLS, SCRAM, ACLs and quotas: both stages get in, and who may not is told what is missing."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, AdminClient, NewPartitions
from pyspark.sql import SparkSession

from console.local_stack.postgres import LocalPostgres
from schemas.topics import Topics
from stores.kafka_errors import NotAllowed
from stores.kafka_log import KafkaLog, TopicKind
from tests.support.captured import Captured
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline
from tests.support.secured_kafka import PASSWORD, SecuredKafka

CAPTURE = (AclOperation.CREATE, AclOperation.READ, AclOperation.WRITE)
"""As docs/how-to/kafka.md has it."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with SecuredKafka(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


@pytest.fixture
def pipeline(secured: SecuredKafka, postgres: LocalPostgres, tmp_path: Path) -> Iterator[Pipeline]:
    """Of one table; the user of its stages has its name. The test itself looks at the broker by the side door."""
    with Pipeline(f"t{secrets.token_hex(4)}", postgres, secured, None, tmp_path) as pipeline:
        pipeline.sql("create table t (id int primary key, a text)", "insert into t values (1, 'copied')")
        pipeline.publish("t")
        secured.add_user(pipeline.name)
        yield pipeline


def capture_by_the_front_door(pipeline: Pipeline, secured: SecuredKafka, **changes: str) -> Captured:
    pipeline.start_capture(**secured.environment(pipeline.name, **changes))
    return Captured(pipeline)


def refusal_of(pipeline: Pipeline) -> str:
    """Reason and solution, in which no secret and no traceback may be."""
    refusal = pipeline.refused()
    log = pipeline.capture_log()
    assert PASSWORD not in refusal.reason + refusal.solution + log
    assert "Traceback" not in log
    return f"{refusal.reason} {refusal.solution}"


def test_capture_copies_and_streams_by_tls_and_scram_with_the_acls_that_the_docs_name(
    pipeline: Pipeline, secured: SecuredKafka
) -> None:
    secured.allow(pipeline.name, f"{pipeline.name}.", *CAPTURE)

    log = capture_by_the_front_door(pipeline, secured)
    log.assert_rows("t")
    pipeline.sql("insert into t values (2, 'streamed')", "alter table t add b int", "update t set b = 1")

    log.assert_rows("t")
    assert PASSWORD not in pipeline.capture_log()


@pytest.mark.parametrize(
    ("allowed", "operation", "topic"),
    [
        ((AclOperation.READ, AclOperation.WRITE), "Create", "checkpoints"),
        ((AclOperation.CREATE, AclOperation.DESCRIBE, AclOperation.WRITE), "Read", ""),
        ((AclOperation.CREATE, AclOperation.READ), "Write", "checkpoints"),
    ],
)
def test_an_acl_that_is_missing_is_named_with_its_topic(
    pipeline: Pipeline, secured: SecuredKafka, allowed: tuple[AclOperation, ...], operation: str, topic: str
) -> None:
    secured.allow(pipeline.name, f"{pipeline.name}.", *allowed)

    capture_by_the_front_door(pipeline, secured)
    told = refusal_of(pipeline)

    assert f"the ACL {operation} on topic {pipeline.name}.{topic}" in told
    assert f"--operation {operation} --topic {pipeline.name}.{topic}" in told


def test_a_change_topic_that_may_not_be_written_ends_capture_and_nothing_is_lost(
    pipeline: Pipeline, secured: SecuredKafka
) -> None:
    topics = Topics(pipeline.config().pipeline)
    for topic in (topics.checkpoints, topics.schemas, topics.control, topics.feedback):
        secured.allow(pipeline.name, topic, *CAPTURE)
    secured.allow(pipeline.name, f"{pipeline.change_topic('t')}.copy.", *CAPTURE)
    with KafkaLog(pipeline.config().kafka) as log:
        log.create(pipeline.change_topic("t"), TopicKind.RECORDS)
    secured.allow(pipeline.name, pipeline.change_topic("t"), AclOperation.READ)

    captured = capture_by_the_front_door(pipeline, secured)
    captured.assert_rows("t")
    pipeline.sql("insert into t values (2, 'streamed')")
    told = refusal_of(pipeline)
    secured.allow(pipeline.name, pipeline.change_topic("t"), AclOperation.WRITE)
    capture_by_the_front_door(pipeline, secured)

    assert f"--operation Write --topic {pipeline.change_topic('t')}`" in told
    captured.assert_rows("t")


def test_topics_that_an_administrator_made_need_no_acl_to_create(pipeline: Pipeline, secured: SecuredKafka) -> None:
    topics = Topics(pipeline.config().pipeline)
    secured.allow(pipeline.name, f"{pipeline.name}.", AclOperation.READ, AclOperation.WRITE)
    secured.allow(pipeline.name, f"{pipeline.change_topic('t')}.copy.", AclOperation.CREATE)
    with KafkaLog(pipeline.config().kafka) as log:
        log.ensure_all([topics.checkpoints, pipeline.change_topic("t")], TopicKind.RECORDS)
        log.ensure_all([topics.schemas, topics.feedback], TopicKind.LATEST)
        log.ensure(topics.control, TopicKind.KEPT)

    capture_by_the_front_door(pipeline, secured).assert_rows("t")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sasl_password": "another"}, "invalid credentials"),
        ({"ssl_ca_location": "stranger"}, "certificate verify failed"),
        ({"ssl_ca_location": "nowhere.crt"}, "ssl.ca.location"),
        ({"security_protocol": "SASL_PLAINTEXT"}, "security.protocol"),
    ],
)
def test_who_is_not_let_in_is_told_what_to_correct(
    pipeline: Pipeline, secured: SecuredKafka, tmp_path: Path, changes: dict[str, str], reason: str
) -> None:
    if changes.get("ssl_ca_location") == "stranger":
        changes = {"ssl_ca_location": str(Authority(tmp_path, "stranger").certificate)}

    pipeline.start_capture(PENSTOCK_KAFKA__PATIENCE="3s", **secured.environment(pipeline.name, **changes))

    told = refusal_of(pipeline)
    assert reason in told
    assert "[kafka.client]" in told


def test_a_client_that_its_quota_holds_back_says_so_and_goes_on_exactly(
    pipeline: Pipeline, secured: SecuredKafka
) -> None:
    secured.allow(pipeline.name, f"{pipeline.name}.", *CAPTURE)
    log = capture_by_the_front_door(pipeline, secured)
    log.assert_rows("t")
    secured.limit(pipeline.name, 12_000)

    pipeline.sql(
        "insert into t select i, (select string_agg(md5(i || '.' || j), '') from generate_series(1, 300) j)"
        "  from generate_series(2, 16) i"
    )
    log.assert_reached()  # the broker takes what comes, and lets the next of that client wait, here about 10 s
    pipeline.sql("insert into t values (17, 'held back')")
    eventually(lambda: "a quota holds this client back" in pipeline.capture_log(), what="a line of the wait")

    log.assert_rows("t")
    assert pipeline.capture is not None
    assert pipeline.capture.process.poll() is None


def test_apply_gets_in_by_the_same_settings_and_reads_the_first_partition_alone_and_what_it_may(
    secured: SecuredKafka,
    postgres: LocalPostgres,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = f"t{secrets.token_hex(4)}"
    secured.add_user(name)
    secured.allow(name, f"{name}.", *CAPTURE)
    with Pipeline(name, postgres, secured, spark, tmp_path) as pipeline:
        pipeline.sql("create table t (id int primary key, a text)", "insert into t values (1, 'copied')")
        pipeline.sql("create table u (id int primary key)")
        pipeline.publish("t", "u")
        for variable, value in secured.environment(name).items():
            monkeypatch.setenv(variable, value)
        pipeline.start_capture()
        topics = Topics(pipeline.config().pipeline)
        eventually(lambda: pipeline.has_topic(pipeline.change_topic("t")), what="the topics")
        admin = AdminClient({"bootstrap.servers": secured.bootstrap_servers, "log_level": 0})
        wanted = [
            NewPartitions(topic, 8) for topic in (topics.feedback, topics.checkpoints, pipeline.change_topic("t"))
        ]
        for future in admin.create_partitions(wanted).values():
            future.result(30)

        pipeline.start_apply()
        pipeline.sql("insert into t values (2, 'streamed')", "update t set a = 'changed' where id = 1")
        pipeline.assert_equal("t", "u")
        secured.deny(name, pipeline.change_topic("u"), AclOperation.READ)
        pipeline.sql("insert into u values (1)")
        pipeline.wait_for_end_of_apply()

        assert isinstance(pipeline.apply_error, NotAllowed)
        assert f"--operation Read --topic {pipeline.change_topic('u')}`" in pipeline.apply_error.solution
