"""What Kafka's client says becomes an error with an object, a reason and a solution."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from stores.kafka_errors import (
    BrokerUnreachable,
    KafkaRefused,
    NotAllowed,
    ProducerEnded,
    RecordsLost,
    TopicMissing,
    log_error,
)

TOPIC = "shop.public.orders"


def ended(code: int) -> KafkaError:
    """As librdkafka ends a producer with a gapless guarantee."""
    words = f"ProduceRequest for {TOPIC} [0] with 3 message(s) failed: {KafkaError(code).str()} (broker 1): unable to"
    return KafkaError(KafkaError._GAPLESS_GUARANTEE, words, fatal=True)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, NotAllowed),
        (KafkaError.MSG_SIZE_TOO_LARGE, KafkaRefused),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, RecordsLost),
        (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, RecordsLost),
    ],
)
def test_a_producer_that_had_to_end_names_the_topic_and_why(code: int, kind: type[Exception]) -> None:
    found = log_error(ended(code), "a record")

    assert type(found) is kind
    assert TOPIC in found.reason


def test_an_acl_that_is_missing_is_named_with_the_command_that_grants_it() -> None:
    refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)

    found = log_error(refused, "reading", topic=TOPIC, operation="Read")

    assert f"the ACL Read on topic {TOPIC} is missing" in found.reason
    assert f"--operation Read --topic {TOPIC}`" in found.solution


def test_a_topic_that_is_not_there_has_lost_records_only_for_who_writes() -> None:
    missing = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)

    assert type(log_error(missing, "reading", topic=TOPIC, operation="Read")) is TopicMissing
    assert type(log_error(missing, "sending", topic=TOPIC)) is RecordsLost


def test_a_client_that_lost_its_own_place_is_replaced_and_not_given_up() -> None:
    found = log_error(KafkaError(KafkaError._INCONSISTENT, "Unable to reconstruct MessageSet", fatal=True), "a record")

    assert isinstance(found, ProducerEnded)
    assert isinstance(found, BrokerUnreachable), "which capture waits out with its next epoch"
