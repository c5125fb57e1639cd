"""A broker that takes connections and answers nothing holds Spark for one `kafka.patience`, not for several."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from apply_spark.read import kafka_options
from schemas.connections import KafkaConfig

PATIENCE = 4.0


@pytest.fixture
def silent_broker() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        yield f"{host}:{port}"


def test_spark_asks_a_silent_broker_for_one_patience(spark: SparkSession, silent_broker: str) -> None:
    kafka = KafkaConfig(bootstrap_servers=silent_broker, patience=timedelta(seconds=PATIENCE))
    reader = spark.readStream.format("kafka").option("assign", '{"any": [0]}').options(**kafka_options(kafka))
    query = reader.load().writeStream.format("noop").start()

    began = time.monotonic()
    with pytest.raises(StreamingQueryException, match="TimeoutException"):
        query.awaitTermination(60)

    assert time.monotonic() - began < 2 * PATIENCE
