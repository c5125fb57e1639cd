"""A command in, a record on the control topic out: how people ask something of a running pipeline."""

from __future__ import annotations

import uuid

from console.config import Config
from schemas.control import Command, Control
from schemas.topics import Topics
from stores.kafka_errors import TopicMissing
from stores.kafka_log import KafkaLog
from stores.record_writer import RecordWriter


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
    patience = pipeline.kafka.patience.total_seconds()
    writer = RecordWriter(pipeline.kafka, {"delivery.timeout.ms": int(patience * 1000)})
    writer.write(topic, control.encode(), control.id.encode(), patience)
    return control.id
