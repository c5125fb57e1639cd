"""A command in, a record on the control topic out: how people ask something of a running pipeline."""

from __future__ import annotations

import uuid

from confluent_kafka import KafkaError, KafkaException, Message

from console.config import Config
from schemas.control import Command, Control
from schemas.errors import LogError
from schemas.topics import Topics
from stores.kafka_log import BrokerUnreachable, KafkaLog, TopicMissing, durable_producer, log_error


def send_command(pipeline: Config, command: Command) -> str:
    """Returns the command's id when Kafka has it. The stage that it is for does it at once, or when it starts."""
    topic = Topics(pipeline.pipeline).control
    with KafkaLog(pipeline.kafka) as log:
        if topic not in log.topics():
            raise TopicMissing(
                f"Pipeline {pipeline.pipeline} has never run: the topic {topic} does not exist.",
                solution=f"Start it: `penstock run -c {pipeline.path}`.",
            )
    control = Control(uuid.uuid4().hex, command)
    _send(pipeline, topic, control)
    return control.id


def _send(pipeline: Config, topic: str, control: Control) -> None:
    failures: list[LogError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(log_error(error, f"sending to {topic}"))

    patience = pipeline.kafka.patience.total_seconds()
    producer = durable_producer(pipeline.kafka, {"delivery.timeout.ms": int(patience * 1000)})
    try:
        producer.produce(topic, control.encode(), control.id.encode(), on_delivery=delivered)
    except KafkaException as error:
        raise log_error(error.args[0], f"sending to {topic}") from error
    left = producer.flush(patience + 1)
    if failures:
        raise failures[0]
    if left:
        raise BrokerUnreachable(f"No Kafka broker took the command within {patience:g} s.")
