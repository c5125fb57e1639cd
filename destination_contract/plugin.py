"""Fixtures that the contract asks for: `pytest_plugins = ["destination_contract.plugin"]` in the topmost conftest.py.

A destination that Spark itself writes to overrides `connector` with its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from apply_spark.config import ApplyConfig, ApplyTuning, DestinationConfig
from apply_spark.destination import Connector
from apply_spark.session import spark_session
from console.local_stack.spark import spark_runtime
from schemas.connections import KafkaConfig
from schemas.identifiers import DestinationName, PipelineName


@pytest.fixture(scope="session")
def connector() -> Connector:
    """What the session needs for the destination. As it is: nothing."""
    return Connector()


@pytest.fixture(scope="session")
def spark(connector: Connector) -> Iterator[SparkSession]:
    """The one session of the run, made as apply makes it. The first one on a machine fetches Spark's connectors."""
    config = ApplyConfig(
        pipeline=PipelineName("tests"),
        name=DestinationName("tests"),
        destination=DestinationConfig(type="memory"),
        kafka=KafkaConfig(bootstrap_servers="none:1"),
        tuning=ApplyTuning(master="local[2]"),
        runtime=spark_runtime(connector),
    )
    session = spark_session(config)
    yield session
    session.stop()
