"""An exact offset range of one or many topics, in one go. Ranges in, raw records out.

Begin and end of every topic are checked before: Spark skips a hole in a range without a word. Nor are offsets
subtracted to count rows; counts come from the checkpoint and are compared with what was read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from apply_spark.errors import TopicCut
from apply_spark.java_client import java_settings
from schemas.connections import KafkaConfig
from stores.kafka_errors import TopicMissing
from stores.kafka_log import KafkaLog


class OffsetRange(NamedTuple):
    """start <= offset < end."""

    start: int
    end: int


_CONSUMER = {
    "kafka.group.id": "penstock",  # always the same: the next read finds the consumers of this one
    "kafka.fetch.max.wait.ms": "1",  # at a topic's end Spark waits so long for what it knows is not there
    "kafka.max.poll.records": "100000",  # for each poll Spark asks the broker twice how far the topic reaches
    "kafka.max.partition.fetch.bytes": "8388608",  # which bounds a poll
}
_REQUEST_MS = 30_000
"""Java's own choice."""
_MANY_RECORDS = 50_000
"""From here on a second core is worth a second consumer."""


def raw_records(spark: SparkSession, kafka: KafkaConfig, ranges: Mapping[str, OffsetRange]) -> DataFrame:
    """The records of these ranges, which were checked: `topic` and `value`."""
    reader = (
        spark.read.format("kafka")
        .option("assign", json.dumps({topic: [0] for topic in ranges}))
        .option("startingOffsets", json.dumps({topic: {"0": range_.start} for topic, range_ in ranges.items()}))
        .option("endingOffsets", json.dumps({topic: {"0": range_.end} for topic, range_ in ranges.items()}))
        .option("failOnDataLoss", "true")
        .options(**_CONSUMER)
    )
    if max(range_.end - range_.start for range_ in ranges.values()) >= _MANY_RECORDS:
        reader = reader.option("minPartitions", str(spark.sparkContext.defaultParallelism))
    for name, value in kafka_options(kafka).items():
        reader = reader.option(name, value)
    return reader.load().select("topic", "value")


def kafka_options(kafka: KafkaConfig) -> dict[str, str]:
    """The client settings as Spark takes them; neither a record that does not come nor an answer is waited for any
    longer than others wait for an answer. The client asks again within that time by itself: the query, which would
    begin anew three times and say nothing meanwhile, is told to try once."""
    patience = int(kafka.patience.total_seconds() * 1000)
    settings = {"request.timeout.ms": str(min(patience, _REQUEST_MS)), **java_settings(kafka)}
    longest = max(patience, int(settings["request.timeout.ms"]))  # Java refuses a question shorter than one request
    return {
        "kafkaConsumer.pollTimeoutMs": str(patience),
        "fetchOffset.numRetries": "1",  # tries, by what Spark does with it
        **{f"kafka.{name}": value for name, value in {"default.api.timeout.ms": str(longest), **settings}.items()},
    }


def checked(log: KafkaLog, ranges: dict[str, OffsetRange]) -> dict[str, OffsetRange]:
    """The same ranges, if their topics reach so far; else TopicCut."""
    try:
        begins, ends = log.begins(ranges), log.ends(ranges)
    except TopicMissing:
        for gone in ranges.keys() - log.topics():
            raise TopicCut(
                gone,
                "does not exist any more: somebody deleted it.",
                solution="Run `penstock resync TABLE`: capture makes it anew. Leave the pipeline's topics to penstock.",
            ) from None
        raise
    for topic, wanted in ranges.items():
        begin, end = begins[topic][0], ends[topic][0]
        if begin > wanted.start:
            raise TopicCut(
                topic,
                f"begins at offset {begin}; {wanted.start} is needed, but its time is up.",
                solution="Run `penstock resync TABLE`; raise `kafka.retention` so that it does not happen again.",
            )
        if end < wanted.end:
            raise TopicCut(
                topic,
                f"ends at offset {end}, before {wanted.end}: it was deleted, or lost its tail.",
                solution="Run `penstock resync TABLE`.",
            )
    return ranges
