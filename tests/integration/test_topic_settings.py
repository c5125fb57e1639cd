"""How long topics keep what is in them: retention and compaction come to records only when their segment is closed."""

from __future__ import annotations

import secrets
from contextlib import suppress
from datetime import timedelta

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource

from console.local_stack.kafka import LocalKafka
from schemas.connections import KafkaConfig
from stores.kafka_log import KafkaLog, TopicKind
from tests.support.eventually import eventually

MINUTE = 60_000


@pytest.mark.parametrize(
    ("kind", "retention", "segment"),
    [
        (TopicKind.RECORDS, timedelta(hours=8), 60 * MINUTE),
        (TopicKind.RECORDS, timedelta(minutes=10), 10 * MINUTE),
        (TopicKind.LATEST, timedelta(hours=8), 10 * MINUTE),
    ],
)
def test_a_segment_is_closed_well_before_its_records_are_to_go(
    kind: TopicKind, retention: timedelta, segment: int, kafka: LocalKafka
) -> None:
    topic = f"t{secrets.token_hex(4)}"
    config = KafkaConfig(bootstrap_servers=kafka.bootstrap_servers, retention=retention)
    with KafkaLog(config) as log:
        log.create(topic, kind)

    admin, wanted = AdminClient(config.client_settings()), ConfigResource(ConfigResource.Type.TOPIC, topic)

    def settings() -> dict[str, ConfigEntry] | None:
        with suppress(KafkaException):  # the broker does not know it yet
            return admin.describe_configs([wanted])[wanted].result(30)
        return None

    assert eventually(settings, what="the topic")["segment.ms"].value == str(segment)
