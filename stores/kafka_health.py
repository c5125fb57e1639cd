"""Why Kafka takes no records of some topics just now, as far as it tells. Asked while somebody waits for it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from confluent_kafka.admin import ConfigResource, PartitionMetadata

from schemas.connections import KafkaConfig
from schemas.errors import LogError
from stores.kafka_errors import LeaderMissing, NotEnoughReplicas, TopicMissing
from stores.kafka_log import KafkaLog

_PATIENCE = timedelta(seconds=5)


def lacking(kafka: KafkaConfig, topics: Iterable[str]) -> LogError | None:
    """What one of the topics lacks, or what all of Kafka does; None: it may be slow, or hold a quota."""
    with KafkaLog(kafka.model_copy(update={"patience": min(kafka.patience, _PATIENCE)})) as log:
        try:
            known = log.cluster().topics
            found = (_lack(log, topic, known[topic].partitions.get(0) if topic in known else None) for topic in topics)
            return next((each for each in found if each is not None), None)
        except LogError as error:
            return error


def _lack(log: KafkaLog, topic: str, partition: PartitionMetadata | None) -> LogError | None:
    if partition is None:
        return TopicMissing(f"Topic {topic} does not exist.")
    if partition.leader < 0:
        return LeaderMissing(f"Topic {topic} has no leader: its brokers {sorted(partition.replicas)} are away.")
    wanted = log.setting(ConfigResource(ConfigResource.Type.TOPIC, topic), "min.insync.replicas")
    if wanted is not None and len(partition.isrs) < int(wanted):
        away = sorted(set(partition.replicas) - set(partition.isrs))
        return NotEnoughReplicas(
            f"Topic {topic} has {len(partition.isrs)} replicas in step and takes records from {wanted} on "
            f"(min.insync.replicas): those on brokers {away} are missing."
        )
    return None
