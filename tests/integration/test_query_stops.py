"""Spark's query does not stop in time where the broker is silent: that is not why apply ends, and hides no reason."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from apply_spark.errors import DestinationAway
from apply_spark.run import _stop

TIMEOUT = "spark.sql.streaming.stopTimeout"


@pytest.fixture
def stuck(spark: SparkSession) -> Iterator[StreamingQuery]:
    """A query whose batch does not end before the test does."""
    began, may_end = threading.Event(), threading.Event()

    def batch(_rows: DataFrame, _number: int) -> None:
        began.set()
        may_end.wait(60)

    before = spark.conf.get(TIMEOUT)
    query = spark.readStream.format("rate").load().writeStream.foreachBatch(batch).start()
    try:
        assert began.wait(60)
        spark.conf.set(TIMEOUT, "10ms")
        yield query
    finally:
        may_end.set()
        spark.conf.set(TIMEOUT, before or "30s")
        query.stop()


def _end_for_another_reason(query: StreamingQuery) -> None:
    """As apply does."""
    with ExitStack() as stack:
        stack.callback(_stop, query)
        raise DestinationAway("The connection to the destination was lost.")


def test_a_query_that_does_not_stop_in_time_does_not_hide_why_apply_ends(stuck: StreamingQuery) -> None:
    with pytest.raises(Py4JJavaError, match="TimeoutException"):
        stuck.stop()

    with pytest.raises(DestinationAway):
        _end_for_another_reason(stuck)
