"""What several files of this folder begin with."""

from __future__ import annotations

import secrets

import pytest

from console.local_stack.kafka import LocalKafka
from schemas.connections import KafkaConfig
from stores.kafka_log import KafkaLog, TopicKind


@pytest.fixture
def config(kafka: LocalKafka) -> KafkaConfig:
    """How to reach the broker of the run."""
    return KafkaConfig(bootstrap_servers=kafka.bootstrap_servers)


@pytest.fixture
def kept_topic(config: KafkaConfig) -> str:
    """A topic that is a test's own, empty, and kept for good."""
    name = f"c{secrets.token_hex(4)}"
    with KafkaLog(config) as log:
        log.create(name, TopicKind.KEPT)
    return name
