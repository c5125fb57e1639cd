"""Topics are read by clients of a real schema registry (Apicurio), and what the registry does costs no row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pydantic import SecretStr

from schemas.identifiers import SchemaId
from schemas.wire import schema_id_of
from stores.schema_registry import RegistryRefused, SchemaMissing, SchemaRegistry
from tests.support.captured import MakeCaptured
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline
from tests.support.registry import Gate
from tests.support.shared_log import shared_log

pytestmark = pytest.mark.further

SETTING = "PENSTOCK_KAFKA__SCHEMA_REGISTRY"
NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def gate(registry: str) -> Iterator[Gate]:
    with Gate(registry) as gate:
        yield gate


class Read(NamedTuple):
    schema_id: int
    key: dict[str, Any] | None
    envelope: dict[str, Any]


def read_by_a_stranger(registry: str, pipeline: Pipeline, topic: str) -> list[Read]:
    """With Confluent's own deserializer, which knows nothing but the registry and the topic."""
    by_topic = {"subject.name.strategy.type": "TOPIC"}  # else it asks for associations first, which Apicurio has not
    deserializer = AvroDeserializer(SchemaRegistryClient({"url": registry}), conf=by_topic)
    key, value = (SerializationContext(topic, field) for field in (MessageField.KEY, MessageField.VALUE))
    with shared_log(pipeline.config().kafka) as log:
        records = list(log.read_all(topic))
    return [
        Read(schema_id_of(record.value or b""), deserializer(record.key, key), deserializer(record.value, value))
        for record in records
    ]


def the_copy_topic(pipeline: Pipeline, table: str) -> str:
    with shared_log(pipeline.config().kafka) as log:
        return next(topic for topic in log.topics() if topic.startswith(f"{pipeline.change_topic(table)}.copy."))


def test_a_client_of_the_registry_reads_copies_and_changes_of_every_shape(captured: MakeCaptured, gate: Gate) -> None:
    pipeline, log = captured(
        "create table t (id int primary key, name varchar(10))",
        "insert into t values (1, 'copied')",
        publish="for table t",
        **{SETTING: gate.address},
    )
    log.assert_rows("t")
    for statements in (
        ["insert into t values (2, 'new')", "update t set name = 'other' where id = 1"],
        ["alter table t alter name type varchar(20)", "insert into t values (3, 'as long as that, 20')"],
        ["alter table t add price numeric", "delete from t where id = 2", "insert into t values (4, 'dear', 9.99)"],
    ):
        pipeline.sql(*statements)
        log.assert_reached()  # before the catalog has the next shape

    copied = read_by_a_stranger(gate.registry, pipeline, the_copy_topic(pipeline, "t"))
    changes = read_by_a_stranger(gate.registry, pipeline, pipeline.change_topic("t"))

    assert [(each.key, each.envelope["op"], each.envelope["after"]) for each in copied] == [
        ({"id": 1}, "r", {"id": 1, "name": "copied"})
    ]
    assert [(each.key, each.envelope["op"], each.envelope["after"]) for each in changes] == [
        ({"id": 2}, "c", {"id": 2, "name": "new"}),
        ({"id": 1}, "u", {"id": 1, "name": "other"}),
        ({"id": 3}, "c", {"id": 3, "name": "as long as that, 20"}),
        ({"id": 2}, "d", None),
        ({"id": 4}, "c", {"id": 4, "name": "dear", "price": "9.99"}),
    ]
    ids = [each.schema_id for each in changes]
    assert len(set(ids)) == 3, "two shapes that look alike in Avro have two ids"
    assert set(ids[:2]) == {copied[0].schema_id}


def test_a_registry_that_goes_away_holds_capture_back_and_costs_no_row(captured: MakeCaptured, gate: Gate) -> None:
    pipeline, log = captured("create table t (id int primary key)", publish="for table t", **{SETTING: gate.address})
    log.assert_rows("t")

    gate.is_shut = True
    pipeline.sql(
        "insert into t values (1)",
        "create table u (id int primary key)",
        "insert into u values (1)",
        f'alter publication "{pipeline.name}" add table u',
        "insert into u values (2)",
        "insert into t values (2)",
    )
    eventually(lambda: "No schema registry answers at" in pipeline.capture_log(), what="a word about the registry")
    eventually(lambda: gate.refused > 2, what="another try")
    gate.is_shut = False

    log.assert_rows("t")
    log.assert_rows("u")
    assert "correct `kafka.schema_registry`" in pipeline.capture_log()
    assert "ss:word" not in pipeline.capture_log()


def test_a_shape_that_the_registry_forbids_ends_capture_until_its_rule_allows_it(
    captured: MakeCaptured, gate: Gate
) -> None:
    pipeline, log = captured(
        "create table t (id int primary key, n int)", publish="for table t", **{SETTING: gate.address}
    )
    log.assert_rows("t")
    subject = f"{pipeline.change_topic('t')}-value"
    gate.set_rule(subject, "BACKWARD")

    pipeline.sql("alter table t alter n type text", "insert into t values (1, 'one')")
    refused = pipeline.refused()
    gate.set_rule(subject, "NONE")
    pipeline.start_capture(**{SETTING: gate.address})

    log.assert_rows("t")
    assert f"refuses the new shape of subject {subject}" in refused.reason
    assert f"Set the compatibility of subject {subject} to NONE" in refused.solution


def test_a_pipeline_that_gets_a_registry_goes_on_with_its_ids(captured: MakeCaptured, gate: Gate) -> None:
    pipeline, log = captured("create table t (id int primary key)", publish="for table t")
    pipeline.sql("insert into t values (1)")
    log.assert_rows("t")
    pipeline.stop_capture()

    pipeline.start_capture(**{SETTING: gate.address})
    pipeline.sql("insert into t values (2)")
    log.assert_rows("t")

    with shared_log(pipeline.config().kafka) as kafka:
        last = list(kafka.read_all(pipeline.change_topic("t")))[-1]
    client = SchemaRegistryClient({"url": gate.registry})
    newest = client.get_latest_version(f"{pipeline.change_topic('t')}-value")
    assert schema_id_of(last.value or b"") == newest.schema_id
    assert len(log.generations("t")) == 1


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        (NOBODY, "No schema registry answers at http://127.0.0.1:9"),
        ("{gate}", "does not let this user do what is needed"),
        ("{registry}/nowhere", "refused its rules"),
    ],
)
def test_capture_ends_at_once_where_it_has_no_registry_at_its_start(
    captured: MakeCaptured, gate: Gate, address: str, reason: str
) -> None:
    stranger = gate.address.replace("penstock:", "nobody:")
    pipeline, _ = captured(
        "create table t (id int primary key)",
        publish="for table t",
        **{SETTING: address.format(gate=stranger, registry=gate.registry)},
    )

    refused = pipeline.refused()

    assert reason in refused.reason
    assert "kafka.schema_registry" in refused.solution


def test_a_schema_that_the_registry_does_not_have_is_told_from_an_address_that_has_none(registry: str) -> None:
    with pytest.raises(SchemaMissing, match="does not have schema 2000000000"):
        SchemaRegistry(SecretStr(registry)).schema(SchemaId(2_000_000_000))
    with pytest.raises(RegistryRefused):
        SchemaRegistry(SecretStr(f"{registry}/nothing")).schema(SchemaId(1))
