"""Settings that librdkafka does not take are the user's mistake: told by their name, never by their value."""

from __future__ import annotations

import pytest

from schemas.connections import KafkaConfig
from schemas.errors import ConfigError
from stores.kafka_log import KafkaLog, durable_producer


@pytest.mark.parametrize(
    ("client", "told"),
    [
        ({"no.such.setting": "s3cr3t"}, "the setting no.such.setting"),
        ({"security.protocol": "s3cr3t"}, "the setting security.protocol"),
        ({"security.protocol": "SSL", "ssl.ca.location": "s3cr3t"}, "the setting ssl.ca.location."),
        ({"security.protocol": "SSL", "ssl.key.pem": "s3cr3t"}, "the setting ssl.key.pem."),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.password": "s3cr3t"},
            "the setting sasl.username and sasl.password.",
        ),
        ({"sasl.jaas.config": "s3cr3t"}, "its settings"),
        ({"error_cb": "s3cr3t"}, "its settings"),
    ],
)
def test_a_setting_that_is_not_taken_is_named_without_its_value(client: dict[str, str], told: str) -> None:
    config = KafkaConfig(bootstrap_servers="127.0.0.1:1", client=client)

    with pytest.raises(ConfigError) as caught:
        KafkaLog(config)

    assert f"kafka.client: librdkafka does not take {told}" in caught.value.reason
    assert "s3cr3t" not in f"{caught.value.reason} {caught.value.solution} {caught.value.__cause__}"


def test_settings_that_contradict_a_durable_producer_are_refused() -> None:
    config = KafkaConfig(bootstrap_servers="127.0.0.1:1", client={"max.in.flight": "10"})

    with pytest.raises(ConfigError, match=r"kafka\.client"):
        durable_producer(config, {})


@pytest.mark.parametrize(
    ("largest", "answer"), [("64MiB", 128 * 1024**2), ("1MB", 100_000_000), ("999MB", 1_066_108_864)]
)
def test_a_client_takes_an_answer_with_the_largest_record(largest: str, answer: int) -> None:
    """One that is larger than the client takes would be asked for again, without a word, until it gives up."""
    config = KafkaConfig.model_validate({"bootstrap_servers": "127.0.0.1:1", "max_record": largest})

    KafkaLog(config).close()

    assert config.client_settings()["receive.message.max.bytes"] == answer
