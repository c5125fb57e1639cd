"""Settings of librdkafka become those of Java."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from apply_spark.java_client import java_settings
from apply_spark.read import kafka_options
from schemas.connections import KafkaConfig
from schemas.errors import ConfigError

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def settings(java: dict[str, str] | None = None, **client: str) -> dict[str, str]:
    named = {name.replace("_", "."): value for name, value in client.items()}
    return java_settings(KafkaConfig(bootstrap_servers="broker:9092", client=named, java_client=java or {}))


def test_what_both_clients_call_the_same_is_passed_on() -> None:
    found = settings(security_protocol="SSL", client_id="shop")

    assert found == {"bootstrap.servers": "broker:9092", "security.protocol": "SSL", "client.id": "shop"}


def waits(patience: float, **client: str) -> list[int]:
    """How long Spark waits for a record, for an answer, and for all answers to one question."""
    named = {name.replace("_", "."): value for name, value in client.items()}
    kafka = KafkaConfig(bootstrap_servers="broker:9092", patience=timedelta(seconds=patience), client=named)
    names = "kafkaConsumer.pollTimeoutMs", "kafka.request.timeout.ms", "kafka.default.api.timeout.ms"
    found = kafka_options(kafka)
    return [int(found[name]) for name in names]


def test_spark_waits_as_long_as_others_wait_for_an_answer() -> None:
    assert waits(5) == [5_000, 5_000, 5_000]
    assert waits(60) == [60_000, 30_000, 60_000]


def test_java_is_given_no_question_that_is_shorter_than_one_request() -> None:
    assert waits(15, request_timeout_ms="6000") == [15_000, 6_000, 15_000]
    assert waits(5, request_timeout_ms="20000") == [5_000, 20_000, 20_000]


@pytest.mark.parametrize("name", ["sasl_mechanism", "sasl_mechanisms"])
@pytest.mark.parametrize(("mechanism", "module"), [("SCRAM-SHA-512", SCRAM), ("PLAIN", PLAIN)])
def test_user_and_password_become_a_login_of_java(name: str, mechanism: str, module: str) -> None:
    found = settings(sasl_username="shop", sasl_password='a"b\\c', **{name: mechanism})  # noqa: S106

    assert found == {
        "bootstrap.servers": "broker:9092",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="shop" password="a\\"b\\\\c";',
    }


def test_certificates_travel_as_text_wherever_they_were(tmp_path: Path) -> None:
    for name, text in (("ca", "CA"), ("crt", "CERTIFICATE"), ("key", "-----BEGIN PRIVATE KEY-----")):
        (tmp_path / name).write_text(text)

    found = settings(
        ssl_ca_location=str(tmp_path / "ca"),
        ssl_certificate_location=str(tmp_path / "crt"),
        ssl_key_pem="-----BEGIN PRIVATE KEY-----",
        ssl_key_password="of the key",  # noqa: S106
    )

    assert found == {
        "bootstrap.servers": "broker:9092",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "CA",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "CERTIFICATE",
        "ssl.keystore.key": "-----BEGIN PRIVATE KEY-----",
        "ssl.key.password": "of the key",
    }


def test_a_broker_that_is_not_to_be_known_by_its_name_is_not() -> None:
    assert settings(ssl_endpoint_identification_algorithm="none")["ssl.endpoint.identification.algorithm"] == ""
    assert settings(ssl_endpoint_identification_algorithm="https")["ssl.endpoint.identification.algorithm"] == "https"


def test_a_pkcs12_file_is_one_in_java_too() -> None:
    found = settings(ssl_keystore_location="/etc/shop.p12", ssl_keystore_password="x")  # noqa: S106

    assert (found["ssl.keystore.type"], found["ssl.keystore.location"]) == ("PKCS12", "/etc/shop.p12")
    assert found["ssl.keystore.password"] == "x"


def test_what_is_said_for_java_goes_before_what_was_translated() -> None:
    found = settings({"sasl.jaas.config": "mine", "sasl.mechanism": "OAUTHBEARER"}, sasl_mechanism="PLAIN")

    assert (found["sasl.jaas.config"], found["sasl.mechanism"]) == ("mine", "OAUTHBEARER")


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"`ssl.ca.location` of `kafka.client` cannot be read.*nowhere"):
        settings(ssl_ca_location="/nowhere")


def test_a_key_that_java_does_not_read_is_refused_with_the_command_that_converts_it() -> None:
    with pytest.raises(ConfigError) as refused:
        settings(ssl_certificate_pem="CERTIFICATE", ssl_key_pem="-----BEGIN RSA PRIVATE KEY-----")

    assert "openssl pkcs8 -topk8" in refused.value.solution
