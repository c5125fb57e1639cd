"""What Spark says becomes an error of ours, and nothing that it repeats of rows goes on."""

from __future__ import annotations

import pytest

from apply_spark.run import QueryFailed, _spark_error
from stores.kafka_errors import BrokerUnreachable, NotAllowed, TopicMissing


def test_a_topic_that_may_not_be_read_is_named() -> None:
    words = "Job aborted: org.apache.kafka.common.errors.TopicAuthorizationException: "
    words += "Not authorized to access topics: [shop.public.orders, shop.public.items]"

    found = _spark_error(RuntimeError(words), "A batch failed.")

    assert isinstance(found, NotAllowed)
    assert "--operation Read --topic shop.public.orders`" in found.solution


def test_a_topic_that_went_away_is_told() -> None:
    assert isinstance(_spark_error(RuntimeError("UnknownTopicOrPartitionException: ..."), "Ended."), TopicMissing)


@pytest.mark.parametrize(
    "words",
    [
        "java.util.concurrent.TimeoutException: Cannot fetch record for offset 17 in 60000 milliseconds",
        "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment. Call: listNodes",
    ],
)
def test_a_broker_that_sends_nothing_is_told(words: str) -> None:
    assert isinstance(_spark_error(RuntimeError(words), "Ended."), BrokerUnreachable)


def test_anything_else_is_told_without_its_words() -> None:
    found = _spark_error(RuntimeError("row 17 is 'private'"), "A batch failed with RuntimeError.")

    assert isinstance(found, QueryFailed)
    assert "private" not in found.reason + found.solution
