"""One Postgres, one broker and one Spark session for the whole run; every test has a database and a pipeline of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from apply_spark.config import ApplyConfig, ApplyTuning, DestinationConfig
from apply_spark.session import spark_session
from console.local_stack.jars import jars
from console.local_stack.java import java_home_for_spark
from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from schemas.connections import KafkaConfig
from schemas.identifiers import DestinationName, PipelineName


@pytest.fixture(scope="session")
def postgres() -> Iterator[LocalPostgres]:
    with LocalPostgres(settings={"max_replication_slots": "60", "max_wal_senders": "60"}) as server:
        yield server


@pytest.fixture(scope="session")
def kafka() -> Iterator[LocalKafka]:
    with LocalKafka() as broker:
        yield broker


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session of the test run, made as apply makes it, but for a JVM that starts fast instead of running fast."""
    config = ApplyConfig(
        pipeline=PipelineName("tests"),
        name=DestinationName("tests"),
        destination=DestinationConfig(type="memory"),
        kafka=KafkaConfig(bootstrap_servers="none:1"),
        tuning=ApplyTuning(
            master="local[2]",
            spark={"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"},
        ),
        jars=tuple(str(jar) for jar in jars("spark-kafka-avro")),
        java_home=str(java_home_for_spark()),
    )
    session = spark_session(config)
    yield session
    session.stop()
