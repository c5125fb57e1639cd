"""Postgres and Kafka in containers, through testcontainers (a dev extra), for machines that have a docker engine.

testcontainers removes the containers when they are closed, and through its reaper also after our death.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import psycopg
from confluent_kafka import KafkaException
from psycopg.conninfo import make_conninfo

from console.local_stack.errors import DockerNotUsable, ServerDidNotStart
from console.local_stack.kafka import asked_cluster_id
from console.local_stack.processes import free_port

_ANSWER_SECONDS = 2
_START_SECONDS = 120.0
_KAFKA_IMAGE = "apache/kafka:4.1.1"
_CONTROLLER_PORT = 9093


@dataclass(frozen=True)
class DockerPostgres:
    """A Postgres in a container."""

    host: str
    port: int
    password: str

    def dsn(self, database: str = "postgres") -> str:
        """How the superuser connects."""
        return make_conninfo(host=self.host, port=self.port, user="postgres", password=self.password, dbname=database)


@dataclass(frozen=True)
class DockerKafka:
    """A Kafka broker in a container."""

    bootstrap_servers: str


def engine_answers() -> bool:
    """Whether a docker engine answers quickly, and the Python package that speaks to it is there."""
    docker = shutil.which("docker")
    if docker is None or find_spec("testcontainers") is None:
        return False
    try:
        asked = subprocess.run(
            [docker, "version", "--format", "{{.Server.Version}}"],
            capture_output=True,
            timeout=_ANSWER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


@contextmanager
def docker_postgres(version: int, settings: Mapping[str, str]) -> Iterator[DockerPostgres]:
    """The official image of a version, with these settings."""
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    container = (
        _container(f"postgres:{version}")
        .with_env("POSTGRES_PASSWORD", "postgres")
        .with_exposed_ports(5432)
        .with_command(f"postgres {options}")
    )
    with container:
        host = container.get_container_host_ip()
        server = DockerPostgres(host, int(container.get_exposed_port(5432)), "postgres")

        def ready() -> bool:
            with psycopg.connect(server.dsn(), connect_timeout=5) as connection:
                return connection.execute("select 1").fetchone() == (1,)

        _wait("Postgres", ready)
        yield server


@contextmanager
def docker_kafka() -> Iterator[DockerKafka]:
    """The official image as broker and controller in one."""
    port = free_port()  # the same inside and outside, because the broker tells its clients where it is
    container = _container(_KAFKA_IMAGE).with_bind_ports(port, port)
    host = container.get_container_host_ip()
    settings = {
        "NODE_ID": "1",
        "PROCESS_ROLES": "broker,controller",
        "CONTROLLER_QUORUM_VOTERS": f"1@localhost:{_CONTROLLER_PORT}",
        "LISTENERS": f"PLAINTEXT://:{port},CONTROLLER://:{_CONTROLLER_PORT}",
        "ADVERTISED_LISTENERS": f"PLAINTEXT://{host}:{port}",
        "CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "AUTO_CREATE_TOPICS_ENABLE": "false",
        "MESSAGE_MAX_BYTES": str(68 * 1024**2),
        "GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "TRANSACTION_STATE_LOG_MIN_ISR": "1",
    }
    for name, value in settings.items():
        container.with_env(f"KAFKA_{name}", value)
    with container:
        broker = DockerKafka(f"{host}:{port}")
        _wait("Kafka", lambda: asked_cluster_id(broker.bootstrap_servers) is not None)
        yield broker


def _container(image: str) -> Any:  # noqa: ANN401 - testcontainers has no types
    try:
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - a dev extra
    except ImportError as error:
        raise DockerNotUsable("The package testcontainers is not installed.") from error
    return DockerContainer(image)


def _wait(name: str, ready: Callable[[], bool]) -> None:
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        with suppress(psycopg.OperationalError, KafkaException):
            if ready():
                return
        time.sleep(0.1)
    raise ServerDidNotStart(
        f"{name} does not answer in its container after {_START_SECONDS:g} s.",
        solution="Look at `docker ps` and `docker logs`, or set PENSTOCK_STACK=native.",
    )
