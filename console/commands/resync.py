"""`penstock resync`: ask a running pipeline to copy a table again."""

from __future__ import annotations

import uuid
from typing import Annotated

import typer
from confluent_kafka import KafkaError, KafkaException, Message

from capture.preflight import connect, published_names
from console.commands.options import ConfigFile
from console.config import DEFAULT_FILE, Config, load
from schemas.connections import KafkaConfig
from schemas.control import Command, Control
from schemas.errors import ConfigError, LogError
from schemas.identifiers import TableName
from schemas.settings import closest
from schemas.topics import Topics
from stores.kafka_log import BrokerUnreachable, KafkaLog, TopicMissing, durable_producer, log_error


def resync(
    *,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="schema.table; without a schema, public.")],
    config: ConfigFile = DEFAULT_FILE,
) -> None:
    """Copy a table again, at every destination, while the others go on."""
    pipeline = load(config)
    name = _published(pipeline, table)
    topic = Topics(pipeline.pipeline).control
    with KafkaLog(pipeline.kafka) as log:
        if topic not in log.topics():
            raise TopicMissing(
                f"Pipeline {pipeline.pipeline} has never run: the topic {topic} does not exist.",
                solution=f"Start it: `penstock run -c {pipeline.path}`; its first start copies every table.",
            )
    control = Control(uuid.uuid4().hex, Command.RESYNC, name)
    send(pipeline.kafka, topic, control)
    typer.echo(f"asked to resync {name} (command {control.id})")


def _published(pipeline: Config, text: str) -> TableName:
    schema, dot, name = text.partition(".")
    wanted = TableName(schema, name) if dot else TableName("public", text)
    with connect(pipeline.source) as connection:
        known = published_names(connection, pipeline.source.publication)
    if wanted not in known:
        near = closest(str(wanted), [str(each) for each in known])
        raise ConfigError(
            f"Publication {pipeline.source.publication} has no table {wanted}"
            + (f"; did you mean {near}?" if near else "."),
            solution="Name a table of the publication, as schema.table.",
        )
    return wanted


def send(kafka: KafkaConfig, topic: str, control: Control) -> None:
    """Returns when Kafka has the command."""
    failures: list[LogError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(log_error(error, f"sending to {topic}"))

    patience = kafka.patience.total_seconds()
    producer = durable_producer(kafka, {"delivery.timeout.ms": int(patience * 1000)})
    try:
        producer.produce(topic, control.encode(), control.id.encode(), on_delivery=delivered)
    except KafkaException as error:
        raise log_error(error.args[0], f"sending to {topic}") from error
    left = producer.flush(patience + 1)
    if failures:
        raise failures[0]
    if left:
        raise BrokerUnreachable(f"No Kafka broker took the command within {patience:g} s.")
