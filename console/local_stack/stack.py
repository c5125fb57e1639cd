"""Postgres and Kafka together, started side by side, and where the jars lie that Spark needs to read them.

`PENSTOCK_STACK` says where the servers run: `docker`, `native` (no docker needed), or `auto`: docker where an engine
answers, else native.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import structlog

from console.local_stack.docker import docker_kafka, docker_postgres, engine_answers
from console.local_stack.environment import StackKind, stack_kind
from console.local_stack.errors import DockerNotUsable
from console.local_stack.jars import jars
from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import SETTINGS, LocalPostgres

log = structlog.get_logger(__name__)


class PostgresServer(Protocol):
    """A Postgres that runs."""

    def dsn(self, database: str = "postgres") -> str:
        """How the superuser connects."""


class KafkaBroker(Protocol):
    """A Kafka broker that runs."""

    @property
    def bootstrap_servers(self) -> str:
        """What a client is given to find the broker."""


@dataclass(frozen=True)
class LocalStack:
    """Two servers that answer."""

    postgres: PostgresServer
    kafka: KafkaBroker

    def spark_jars(self, *more_groups: str) -> list[Path]:
        """The jars with which Spark reads Kafka and Avro, and those of more groups (delta, iceberg, jdbc)."""
        return [jar for group in ("spark-kafka-avro", *more_groups) for jar in jars(group)]


@contextmanager
def local_stack(
    *,
    postgres_version: int = 17,
    postgres_settings: Mapping[str, str] | None = None,
    data_dir: Path | None = None,
    kind: StackKind | None = None,
) -> Iterator[LocalStack]:
    """Both servers, ready. Their data is thrown away at the end unless `data_dir` is given, which means native."""
    chosen = _resolve(kind or stack_kind(), data_dir)
    log.info("local stack starting", kind=chosen.value, postgres_version=postgres_version)
    postgres, kafka = _servers(chosen, postgres_version, postgres_settings or {}, data_dir)
    with ExitStack() as running:
        # Each server is registered by the thread that started it, so one that runs is closed even if the other fails.
        with ThreadPoolExecutor(2, thread_name_prefix="local-stack") as pool:
            broker: Future[KafkaBroker] = pool.submit(running.enter_context, kafka)
            server: Future[PostgresServer] = pool.submit(running.enter_context, postgres)
        yield LocalStack(server.result(), broker.result())


def _servers(
    kind: StackKind, version: int, settings: Mapping[str, str], data_dir: Path | None
) -> tuple[AbstractContextManager[PostgresServer], AbstractContextManager[KafkaBroker]]:
    if kind is StackKind.DOCKER:
        return docker_postgres(version, {**SETTINGS, **settings}), docker_kafka()
    return (
        LocalPostgres(version, data_dir and data_dir / "postgres", settings),
        LocalKafka(data_dir and data_dir / "kafka"),
    )


def _resolve(kind: StackKind, data_dir: Path | None) -> StackKind:
    """DOCKER or NATIVE."""
    if kind is StackKind.NATIVE:
        return kind
    if kind is StackKind.AUTO:
        return StackKind.DOCKER if data_dir is None and engine_answers() else StackKind.NATIVE
    if data_dir is not None:
        raise DockerNotUsable(
            f"The servers' data is to be kept in {data_dir}, which only the native stack does.",
            solution="Set PENSTOCK_STACK=native.",
        )
    if not engine_answers():
        raise DockerNotUsable(
            "PENSTOCK_STACK is 'docker', but `docker version` finds no engine, or testcontainers is missing."
        )
    return kind
