"""What is asked beside a wait for Kafka ends with the epoch that waited."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from capture import kafka_wait
from capture.kafka_wait import KafkaWait
from schemas.connections import KafkaConfig
from tests.support.eventually import eventually

NOBODY = KafkaConfig(bootstrap_servers="127.0.0.1:1", patience=timedelta(seconds=0.2))


def asking() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("kafka-wait")]


def test_no_thread_is_left_when_the_epoch_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_wait, "_SECONDS", 0.0)
    wait = KafkaWait(NOBODY)
    wait.look(["t"], unsent=1)
    wait.look(["t"], unsent=1)
    assert asking() != []

    wait.close()

    eventually(lambda: asking() == [], what="the end of its thread")
