"""What apply and replay work with, opened in the one right order and closed after them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import structlog
from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from apply_spark.config import ApplyConfig, FilledBy, Mode
from apply_spark.copies import CopyReader
from apply_spark.destination import Destination
from apply_spark.destinations.registry import connector, make_destination
from apply_spark.errors import SparkEnded
from apply_spark.feedback import FeedbackSender, NoFeedback
from apply_spark.intervals import Budget
from apply_spark.kept_destination import KeptDestination
from apply_spark.micro_batch import Parts
from apply_spark.progress import Progress
from apply_spark.range_reader import ReadingThread
from apply_spark.reader import IntervalReader
from apply_spark.session import spark_session
from apply_spark.showing import Showing, salt_of
from apply_spark.shown import ShownDestination
from schemas.topics import Topics
from stores.kafka_log import KafkaLog
from stores.schema_topic import SchemaTopic

_TOPIC_SECONDS = 0.2
_WHERE_ARE_THEY = "Start capture. If it runs: a client sees only topics for which it has the ACL Describe or Read."

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Opened:
    """A destination that is ours, what it holds, and the two servers."""

    destination: Destination
    stored: Progress | None
    kafka: KafkaLog
    spark: SparkSession


@contextmanager
def opened(config: ApplyConfig, spark: SparkSession | None) -> Iterator[Opened]:
    """A session that is given is used and left running. SparkEnded: its process died in the block."""
    try:
        with ExitStack() as stack:
            destination = shown_destination(config)
            stack.callback(destination.shutdown)
            by_spark = connector(config.name, config.destination) is not None
            stored = None if by_spark else destination.startup()
            kafka = stack.enter_context(KafkaLog(config.kafka))
            kafka.topics()  # a broker that is not there is told before Spark starts
            if spark is None:
                spark = spark_session(config)
                stack.callback(spark.stop)
            if by_spark:
                stored = destination.startup()
            yield Opened(destination, stored, kafka, spark)
    except (Py4JNetworkError, ConnectionRefusedError) as error:
        raise SparkEnded("The Java process of Spark has ended.") from error


def shown_destination(config: ApplyConfig) -> Destination:
    """It gets what it is to keep and to show, and nothing else."""
    destination = make_destination(config.name, config.destination)
    showing = Showing.configured(config.destination)
    shown = ShownDestination(destination, showing, salt_of(config.destination))
    return shown if showing.mode is Mode.MIRROR else KeptDestination(shown, showing.mode)


@contextmanager
def made_parts(config: ApplyConfig, here: Opened) -> Iterator[Parts]:
    """What an Applier works with. Only a destination that apply fills tells capture how far it is."""
    topics = Topics(config.pipeline)
    schemas = SchemaTopic(config.kafka, here.kafka, topics.schemas)
    budget = Budget(config.tuning.interval_rows, int(config.tuning.interval_bytes))
    showing = Showing.configured(config.destination)
    with ExitStack() as stack:
        feedback: FeedbackSender | NoFeedback = NoFeedback()
        if config.destination.filled_by is FilledBy.APPLY:
            feedback = FeedbackSender(config.kafka, topics.feedback, config.name)
        stack.callback(feedback.close)

        def thread(name: str) -> ReadingThread:
            return stack.enter_context(ReadingThread(config.kafka, name))

        yield Parts(
            spark=here.spark,
            topics=topics,
            log=here.kafka,
            schemas=schemas,
            reader=IntervalReader(
                here.spark, config.kafka, topics, here.kafka, schemas, thread("interval-ahead"), budget, showing
            ),
            copies=CopyReader(here.spark, config.kafka, topics, here.kafka, schemas, thread("copy-ahead")),
            feedback=feedback,
            tuning=config.tuning,
            showing=showing,
        )


def wait_for_capture(kafka: KafkaLog, topics: Topics, stop: threading.Event) -> bool:
    """Apply may be started first: it waits until capture has made the topics. False: told to stop meanwhile."""
    told = False
    while not stop.is_set():
        if small_topics(topics) <= kafka.topics():
            return True
        if not told:
            log.info("waiting for capture to create the topics", topic=topics.checkpoints, solution=_WHERE_ARE_THEY)
            told = True
        stop.wait(_TOPIC_SECONDS)
    return False


def small_topics(topics: Topics) -> set[str]:
    """Those that apply reads and writes."""
    return {topics.checkpoints, topics.schemas, topics.feedback, topics.control}
