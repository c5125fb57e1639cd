"""One Postgres, one broker and one Spark session for the whole run; a test has a database and topics of its own."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from apply_spark.config import ApplyConfig, ApplyTuning, DestinationConfig
from apply_spark.destination import Connector
from apply_spark.destinations.delta import DeltaDestination
from apply_spark.destinations.iceberg import IcebergDestination
from apply_spark.session import spark_session
from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from console.local_stack.spark import spark_runtime
from schemas.connections import KafkaConfig
from schemas.identifiers import DestinationName, PipelineName
from tests.support.captured import MakeCaptured, captures
from tests.support.pipeline import Pipeline
from tests.support.postgres_version import VERSION
from tests.support.registry import apicurio
from tests.support.s3_server import S3Server, s3_server

# Every Spark of the run, also in processes that a test starts, has a JVM that starts fast instead of running fast, and
# interprets its plans: a test has few rows, and many plans that no other has. Who measures time sets it to nothing.
# Such a JVM has room for 48 MB of compiled code, which are full after some minutes of plans: it then throws code away
# and compiles it again. To look for such code alone took a twentieth of the CPU of a run of Delta's tests.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
    " -Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN",
)

# A test says what is right; how long a busy machine takes for it is no property of the code.
settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")

_DELTA, _ICEBERG = DeltaDestination.connector, IcebergDestination.connector
_ALL = Connector((*_DELTA.jars, *_ICEBERG.jars), {**_DELTA.settings, **_ICEBERG.settings})
"""What any destination needs of Spark."""
MakePipeline = Callable[..., Pipeline]
Servers = tuple[LocalPostgres, LocalKafka, SparkSession]


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """What needs Spark says so by its fixtures; `make test` runs the others beside it."""
    for item in items:
        if "spark" in item.fixturenames:
            item.add_marker("spark")


@pytest.fixture(scope="session")
def postgres() -> Iterator[LocalPostgres]:
    settings = {"max_replication_slots": "60", "max_wal_senders": "60", "max_prepared_transactions": "10"}
    with LocalPostgres(VERSION, settings=settings) as server:
        yield server


@pytest.fixture(scope="session")
def kafka() -> Iterator[LocalKafka]:
    with LocalKafka() as broker:
        yield broker


@pytest.fixture(scope="session")
def registry() -> Iterator[str]:
    """The address of a schema registry, by Confluent's API."""
    with apicurio() as address:
        yield address


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session of the run, made as apply makes it."""
    config = ApplyConfig(
        pipeline=PipelineName("tests"),
        name=DestinationName("tests"),
        destination=DestinationConfig(type="memory"),
        kafka=KafkaConfig(bootstrap_servers="none:1"),
        tuning=ApplyTuning(master="local[2]"),
        runtime=spark_runtime(_ALL),
    )
    session = spark_session(config)
    yield session
    session.stop()


@pytest.fixture
def make_pipeline(servers: Servers, tmp_path: Path) -> Iterator[MakePipeline]:
    """Pipelines on the shared servers; all that they started ends with the test."""
    with ExitStack() as stack:
        yield lambda toml="": stack.enter_context(_pipeline(servers, tmp_path, toml))


@pytest.fixture
def captured(postgres: LocalPostgres, kafka: LocalKafka, tmp_path: Path) -> Iterator[MakeCaptured]:
    """Pipelines without a destination, which need no Spark."""
    with ExitStack() as stack:
        yield captures(stack, postgres, kafka, tmp_path)


@pytest.fixture(scope="module")
def make_shared_pipeline(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakePipeline]:
    """The same, for all tests of a module."""
    with ExitStack() as stack:
        yield lambda toml="": stack.enter_context(_pipeline(servers, tmp_path_factory.mktemp("shared"), toml))


@pytest.fixture(scope="session")
def servers(postgres: LocalPostgres, kafka: LocalKafka, spark: SparkSession) -> Servers:
    return postgres, kafka, spark


def _pipeline(servers: Servers, folder: Path, toml: str) -> Pipeline:
    name = f"t{secrets.token_hex(4)}"
    mine = folder / name
    mine.mkdir()
    return Pipeline(name, *servers, mine, toml)
