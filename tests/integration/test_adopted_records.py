"""Records as Debezium writes them, on a real topic, become changes of a table; those that would be lost are refused.

What a real connector writes, and what apply makes of it, is in test_adopted_topics.py.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pydantic import ByteSize, SecretStr
from structlog.testing import capture_logs

from capture.adopt.debezium import DebeziumSchemas, NotAdopted, placeholders
from capture.adopt.run import run_adopt
from capture.adopt.table import AdoptedTable, Shared
from capture.adopt.window import Window
from capture.checkpoints import LogPlace
from capture.config import AdoptConfig, AdoptSection
from capture.producer import BoundedProducer
from capture.registrar import Registrar
from console.local_stack.kafka import LocalKafka
from schemas.checkpoint import TableErrored
from schemas.connections import KafkaConfig
from schemas.identifiers import Epoch, PipelineName, TableName
from schemas.lsn import Lsn
from schemas.topics import Topics
from stores.kafka_log import KafkaLog, TopicKind
from stores.schema_topic import SchemaTopic
from tests.support.avro_records import encoded
from tests.support.envelopes import Envelopes
from tests.support.eventually import eventually

T = TableName("public", "t")
MOVED_TO, MOVED_FROM = [("__debezium.newkey", b"")], [("__debezium.oldkey", b"")]


def record(name: str, /, **fields: object) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": fields[each]} for each in fields]}


SOURCE = record(
    "Source",
    connector="string",
    db="string",
    schema="string",
    table="string",
    ts_ms="long",
    snapshot=["null", "string"],
    txId=["null", "long"],
    lsn=["null", "long"],
)
ROW = record("Value", id="int", name=["null", "string"])
KEY, OTHER_KEY = 1, 2
ENVELOPE, TRANSACTION = 3, 4
SCHEMAS = {
    KEY: record("Key", id="int"),
    OTHER_KEY: record("OtherKey", id="int", __dbz__physicalTableIdentifier="string"),
    ENVELOPE: record("Envelope", before=["null", ROW], after=["null", "Value"], source=SOURCE, op="string"),
    TRANSACTION: record("TransactionMetadataValue", status="string", id="string"),
}


def wire(schema: int, value: dict[str, Any]) -> bytes:
    return encoded(SCHEMAS[schema], value, b"\0" + schema.to_bytes(4, "big"))


def key(number: int) -> bytes:
    return wire(KEY, {"id": number})


def change(op: str, number: int | None = None, name: str | None = None, **source: object) -> bytes:
    told = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "t", "ts_ms": 1, **source}
    after = None if number is None else {"id": number, "name": name}
    return wire(ENVELOPE, {"before": None, "after": after, "source": told, "op": op})


class Adopted:
    """A topic of Debezium's and the pipeline that adopts it."""

    def __init__(self, log: KafkaLog, kafka: KafkaConfig) -> None:
        self._log, self._kafka = log, kafka
        self._producer = Producer(kafka.client_settings())
        prefix = secrets.token_hex(4)
        self._pipeline = PipelineName(f"p{prefix}")
        self._topics = Topics(self._pipeline)
        log.ensure(self._topics.schemas, TopicKind.LATEST)
        self.topic, self.other_topic = f"d{prefix}.public.t", f"e{prefix}.public.t"
        log.ensure_all([self.topic, self.other_topic], TopicKind.RECORDS)
        self.start()

    def start(self, of: AdoptedTable | None = None) -> None:
        """An epoch, which goes on where that table was read to."""
        self._schemas = SchemaTopic(self._kafka, self._log, self._topics.schemas)
        self._schemas.refresh()
        self.window = Window(Lsn(1), 0, BoundedProducer(self._kafka, ByteSize(2**20), lambda: None))
        self.shared = Shared(
            pipeline=self._pipeline,
            epoch=Epoch(1),
            theirs=DebeziumSchemas(SCHEMAS.__getitem__),
            placeholders=placeholders("unavailable"),
            schemas=self._schemas,
            registrar=Registrar(self._pipeline, self._log, self._schemas),
            window=self.window,
        )
        self.table = AdoptedTable(self.shared, self.topic, of.read_to if of else 0, begun=of is not None)

    def restart(self) -> None:
        self.window.flush()
        self.start(of=self.table)

    def send(self, key: bytes | None, value: bytes | None, headers: Any = None, *, topic: str = "") -> None:  # noqa: ANN401
        self._producer.produce(topic or self.topic, value, key, headers=headers)
        self._producer.flush(30)

    def take(self, table: AdoptedTable | None = None) -> None:
        """All that is on the topic by now."""
        table = table or self.table
        end = self._log.ends([table.topic])[table.topic][0]
        with closing(Consumer(self._kafka.client_settings() | {"group.id": "test"})) as consumer:
            consumer.assign([TopicPartition(table.topic, 0, table.next)])
            while table.next < end:
                message = consumer.poll(30)
                assert message is not None
                table.take(message, LogPlace(0, {}))

    def changes(self) -> list[tuple[str, int | None, int | None]]:
        """Operation, key before and key after of all that was written."""
        self.window.flush()
        envelopes = Envelopes(self._schemas)
        read = [envelopes.read(each.value)[1] for each in self._log.read_all(self._topics.changes(T))]
        return [(each["op"], _id(each["before"]), _id(each["after"])) for each in read]


def _id(image: dict[str, Any] | None) -> int | None:
    return None if image is None else image["id"]


@pytest.fixture
def adopted(kafka: LocalKafka) -> Iterator[Adopted]:
    config = KafkaConfig(bootstrap_servers=kafka.bootstrap_servers)
    with KafkaLog(config) as log:
        yield Adopted(log, config)


def test_a_tombstone_is_nothing_behind_its_delete_and_the_delete_where_compaction_took_it(adopted: Adopted) -> None:
    for number in (1, 2, 3):
        adopted.send(key(number), change("r", number))
    adopted.send(key(1), change("d"))
    adopted.send(key(1), None)
    adopted.send(key(2), None)

    adopted.take()

    created = [("c", None, number) for number in (1, 2, 3)]
    assert adopted.changes() == [*created, ("d", 1, None), ("d", 2, None)]


def test_a_tombstone_that_comes_first_after_a_restart_waits_for_a_record_that_tells_the_shape(
    adopted: Adopted,
) -> None:
    adopted.send(key(1), None)
    adopted.send(key(1), change("c", 1))
    adopted.take()
    adopted.restart()
    adopted.send(key(1), None)
    adopted.take()
    assert adopted.table.read_to == 2, "another epoch has to read it again"

    adopted.send(key(2), change("c", 2))
    adopted.take()

    assert adopted.table.read_to == 4
    assert adopted.changes() == [("c", None, 1), ("d", 1, None), ("c", None, 2)]


def test_a_truncate_is_taken_also_where_it_is_the_first_record_after_a_restart(adopted: Adopted) -> None:
    adopted.send(None, change("t"))
    adopted.send(key(1), change("c", 1))
    adopted.take()
    adopted.restart()

    adopted.send(None, change("t"))
    adopted.take()

    assert adopted.changes() == [("c", None, 1), ("t", None, None)]


def test_a_changed_key_is_a_move_with_its_tombstone_in_between(adopted: Adopted) -> None:
    adopted.send(key(1), change("c", 1))
    adopted.send(key(1), change("d"), MOVED_TO)
    adopted.send(key(1), None)
    adopted.take()
    assert adopted.table.read_to == 1, "both halves come in one window"

    adopted.send(key(2), change("c", 2), MOVED_FROM)
    adopted.take()

    assert adopted.changes() == [("c", None, 1), ("d", 1, None), ("c", 1, 2)]


@pytest.mark.parametrize(
    ("strange_key", "value", "reason"),
    [
        (key(1), change("m"), "operation m"),
        (None, change("c", 1), "no key"),
        (key(1), wire(TRANSACTION, {"status": "BEGIN", "id": "1"}), "not the envelope"),
        (key(1), change("c", 1, table="u"), "records of two tables, public.t and public.u"),
        (key(1), change("c", 1, connector="mysql"), "connector for mysql"),
        (key(1), b'{"op": "c"}', "header of Confluent"),
        (key(1), change("c", 1)[:-3], "not what its schema says"),
    ],
    ids=["message", "no key", "transaction", "other table", "other connector", "json", "cut"],
)
def test_a_record_that_is_no_change_of_the_table_is_refused_and_nothing_is_passed_over(
    adopted: Adopted, strange_key: bytes | None, value: bytes, reason: str
) -> None:
    adopted.send(key(1), change("c", 1))
    adopted.take()
    adopted.restart()

    adopted.send(strange_key, value)

    with pytest.raises(NotAdopted, match=reason) as refused:
        adopted.take()
    adopted.table.stop(refused.value)
    (marker,) = adopted.window.markers
    assert isinstance(marker, TableErrored)
    assert marker.table == T, "a table that stops before its first record is known by its topic"
    assert f"(topic {adopted.topic}, offset 1)" in marker.reason
    assert marker.solution.startswith(refused.value.solution)


def test_a_record_whose_id_is_in_its_headers_is_not_read_as_if_its_bytes_began_with_one(adopted: Adopted) -> None:
    adopted.send(key(1), change("c", 1), [("apicurio.value.contentId", b"\0\0\0\0\0\0\0\3")])

    with pytest.raises(NotAdopted, match="in its headers") as refused:
        adopted.take()

    assert "headers.enabled = false" in refused.value.solution


def test_a_key_that_is_not_of_the_table_and_a_table_on_two_topics_are_refused(adopted: Adopted) -> None:
    routed = wire(OTHER_KEY, {"id": 1, "__dbz__physicalTableIdentifier": "t"})
    adopted.send(routed, change("c", 1), topic=adopted.other_topic)
    other = AdoptedTable(adopted.shared, adopted.other_topic, 0, begun=False)

    with pytest.raises(NotAdopted, match="key of its records has __dbz__physicalTableIdentifier"):
        adopted.take(other)
    adopted.send(key(1), change("c", 1))

    with pytest.raises(NotAdopted, match=f"on topic {adopted.other_topic} as well"):
        adopted.take()


def test_a_registry_that_is_away_is_waited_for(adopted: Adopted, kafka: LocalKafka) -> None:
    adopted.send(key(1), change("c", 1))
    config = AdoptConfig(
        pipeline=PipelineName(f"q{secrets.token_hex(4)}"),
        kafka=KafkaConfig(bootstrap_servers=kafka.bootstrap_servers),
        adopt=AdoptSection(topics=(adopted.topic,), schema_registry=SecretStr("http://127.0.0.1:9")),
    )
    stop = threading.Event()
    adopting = threading.Thread(target=run_adopt, args=(config, stop), name="adopt")

    with capture_logs() as said:
        adopting.start()
        waits = eventually(lambda: [each for each in said if each["event"] == "waiting to open the next epoch"])
        stop.set()
        adopting.join()

    assert "adopt.schema_registry" in waits[0]["solution"]
