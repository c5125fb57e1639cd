"""What retention does to a topic, at once."""

from __future__ import annotations

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from console.config import Config


def expire(config: Config, topic: str, before: int) -> None:
    """Takes the records below that offset away."""
    admin = AdminClient(config.kafka.client_settings())
    for future in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        future.result(30)
