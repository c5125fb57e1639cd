"""Three brokers, of which the first is the controller as well: the others may die."""

from __future__ import annotations

import re
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from console.local_stack.kafka import LocalKafka
from tests.support.eventually import eventually

SIZE = 3


class _Broker(LocalKafka):
    """One of a cluster. What is written is to be on two of its brokers, unless a topic says otherwise."""

    def __init__(self, number: int, first: _Broker | None) -> None:
        super().__init__()
        self._number = number
        self._first = first

    @property
    def cluster_id(self) -> str:
        return self._prepared(self.directory)

    @property
    def controller_port(self) -> int:
        assert self._ports is not None
        return self._ports[1]

    def _prepared(self, directory: Path) -> str:
        meta = directory / "data" / "meta.properties"
        joins = self._first if not meta.exists() else None
        own = super()._prepared(directory)
        if joins is None:
            return own
        text = meta.read_text().replace(f"cluster.id={own}", f"cluster.id={joins.cluster_id}")
        text = text.replace("node.id=1", f"node.id={self._number}")
        folder_id = urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=").replace("-", "A")
        meta.write_text(re.sub("directory.id=.*", f"directory.id={folder_id}", text))
        return joins.cluster_id

    def _settings(self, directory: Path, port: int, controller_port: int) -> dict[str, str]:
        settings = super()._settings(directory, port, controller_port) | {"min.insync.replicas": "2"}
        if self._first is None:
            return settings
        return settings | {
            "process.roles": "broker",
            "node.id": str(self._number),
            "controller.quorum.voters": f"1@127.0.0.1:{self._first.controller_port}",
            "listeners": settings["listeners"].partition(",CONTROLLER")[0],
        }


class Cluster:
    """The brokers by their numbers, from 1 on."""

    def __init__(self, brokers: dict[int, LocalKafka]) -> None:
        self.brokers = brokers
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    def create(self, topic: str, *replicas: int, in_step: int) -> None:
        """On these brokers, the first of which leads. It takes records while so many are in step."""
        wanted = NewTopic(topic, 1, replica_assignment=[list(replicas)], config={"min.insync.replicas": str(in_step)})
        self._admin.create_topics([wanted])[topic].result(30)

    def partition(self, topic: str) -> PartitionMetadata:
        return self._admin.list_topics(topic, timeout=10).topics[topic].partitions[0]

    def wait_for_leader(self, topic: str, *numbers: int) -> None:
        eventually(lambda: self.partition(topic).leader in numbers, what=f"a leader of {topic} among {numbers}")

    def wait_for_replicas(self, topic: str, *numbers: int) -> None:
        eventually(lambda: set(self.partition(topic).isrs) == set(numbers), what=f"{topic} on {numbers}")

    def elect(self, topic: str, number: int) -> None:
        """That broker, though it lacks records."""

        def elected() -> bool:
            self._admin.elect_leaders(ElectionType.UNCLEAN, [TopicPartition(topic, 0)]).result(30)
            return self.partition(topic).leader == number

        eventually(elected, what=f"broker {number} to lead {topic}")

    def start_all(self) -> None:
        for broker in self.brokers.values():
            broker.start()
        eventually(lambda: len(self._admin.list_topics(timeout=10).brokers) == SIZE, what="every broker")


@contextmanager
def kafka_cluster() -> Iterator[Cluster]:
    with ExitStack() as stack:
        first = stack.enter_context(_Broker(1, None))
        others = {number: stack.enter_context(_Broker(number, first)) for number in range(2, SIZE + 1)}
        cluster = Cluster({1: first, **others})
        cluster.start_all()
        yield cluster
