"""Starts and stops the query: one Structured Streaming query on the checkpoints topic for each destination.

The query's own checkpoint directory is scratch: where to begin is part of the destination's progress.
"""

from __future__ import annotations

import itertools
import json
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

import structlog
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from apply_spark.config import ApplyConfig, Ends
from apply_spark.copies import CopyReader
from apply_spark.destination import Destination
from apply_spark.destinations.registry import connector, make_destination
from apply_spark.errors import SparkEnded, TablesHeld
from apply_spark.feedback import FeedbackSender
from apply_spark.intervals import Budget
from apply_spark.micro_batch import Applier, Parts
from apply_spark.progress import Progress
from apply_spark.read import kafka_options
from apply_spark.reader import IntervalReader
from apply_spark.session import spark_session
from schemas.checkpoint import COMPLETES, Checkpoint
from schemas.errors import LogError, PenstockError
from schemas.phases import Errored, Ready
from schemas.topics import Topics
from stores.kafka_log import KafkaLog, Record, Tail, TopicMissing
from stores.schema_topic import SchemaTopic

_WAIT_SECONDS = 0.2
_TOPIC_SECONDS = 1.0
_POLL_SECONDS = 0.02
_QUIET_SECONDS = 1.0
_MOST_RECORDS = 2000

log = structlog.get_logger(__name__)


class QueryFailed(LogError):
    """Spark's query on the checkpoints topic ended by itself."""

    solution = "Look at the log above; check that the broker and the topics of this pipeline are there."


def run_apply(config: ApplyConfig, stop: threading.Event, spark: SparkSession | None = None) -> None:
    """Applies until `stop`, or until all is copied where that is the end; returns after the batch under way, raises
    PenstockError where it cannot go on.

    A session that is given is used and left running."""
    try:
        _run(config, stop, spark)
    except (Py4JNetworkError, ConnectionRefusedError) as error:
        raise SparkEnded("The Java process of Spark has ended.") from error


def _run(config: ApplyConfig, stop: threading.Event, spark: SparkSession | None) -> None:
    with ExitStack() as stack:
        destination = make_destination(config.name, config.destination)
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
        if _wait_for_capture(kafka, Topics(config.pipeline), stop):
            _query_until(stop, spark, config, destination, stored, kafka)


def _query_until(
    stop: threading.Event,
    spark: SparkSession,
    config: ApplyConfig,
    destination: Destination,
    stored: Progress | None,
    kafka: KafkaLog,
) -> None:
    topics = Topics(config.pipeline)
    feedback = FeedbackSender(config.kafka, topics.feedback, config.name)
    schemas = SchemaTopic(config.kafka, kafka, topics.schemas)
    with ExitStack() as stack:
        stack.callback(feedback.close)
        begin, stored = _begin(kafka, topics, stored)
        budget = Budget(config.tuning.interval_rows, int(config.tuning.interval_bytes))
        parts = Parts(
            spark=spark,
            topics=topics,
            log=kafka,
            schemas=schemas,
            reader=IntervalReader(spark, config.kafka, topics, kafka, schemas, budget),
            copies=stack.enter_context(CopyReader(spark, config.kafka, topics, kafka, schemas)),
            feedback=feedback,
            tuning=config.tuning,
        )
        checkpoints = Tail(config.kafka, topics.checkpoints, begin)
        stack.callback(checkpoints.close)
        handler = _Handler(Applier(destination, stored, parts), checkpoints, begin, stop)
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-query-"))
        query = _start(spark, config, topics.checkpoints, begin, handler, scratch)
        stack.callback(query.stop)
        log.info("apply started", destination=config.name, lsn=str(stored.lsn if stored else "0/0"))
        own_log = stack.enter_context(KafkaLog(config.kafka))  # the other one is the handler's, in its thread

        def over() -> bool:
            return (
                config.ends is Ends.WHEN_COMPLETE
                and handler.idle.is_set()
                and _is_complete(own_log, topics.checkpoints, handler.applier.progress)
            )

        _watch(query, handler, stop, over)
        log.info("apply stopped", destination=config.name)


class _Handler:
    """What Spark calls for each micro-batch. An error is kept: on its way through the JVM it would lose its type.

    The batch says that there are new checkpoints. They are read here, which costs less than one more Spark job, and as
    long as more come the batch goes on: Spark writes two files for each, which takes longer than a small interval."""

    def __init__(self, applier: Applier, checkpoints: Tail, begin: int, stop: threading.Event) -> None:
        self.applier = applier
        self._checkpoints = checkpoints
        self._stop = stop
        self._next_offset = begin
        self._waiting: list[Record] = []
        self.failure: BaseException | None = None
        self.idle = threading.Event()
        self.idle.set()

    def __call__(self, _batch: DataFrame, _number: int) -> None:
        self.idle.clear()
        try:
            quiet_since = time.monotonic()
            while not self._stop.is_set() and time.monotonic() - quiet_since < _QUIET_SECONDS:
                if self._news():
                    records, self._waiting = self._waiting, []
                    self.applier.take(records)
                    quiet_since = time.monotonic()
                self.applier.work(self._news)
                self._stop.wait(0 if self._waiting else _POLL_SECONDS)
        except BaseException as error:
            self.failure = error
            raise
        finally:
            self.idle.set()

    def _news(self) -> bool:
        """Whether something waits that is more urgent than a copy."""
        for record in itertools.islice(self._checkpoints.new(), _MOST_RECORDS - len(self._waiting)):
            if record.offset != self._next_offset:
                raise TopicMissing(f"The checkpoints topic goes on at {record.offset} instead of {self._next_offset}.")
            self._next_offset += 1
            self._waiting.append(record)
        return self._stop.is_set() or bool(self._waiting)


def _start(
    spark: SparkSession, config: ApplyConfig, topic: str, begin: int, handler: _Handler, scratch: str
) -> StreamingQuery:
    reader = (
        spark.readStream.format("kafka")
        .option("assign", json.dumps({topic: [0]}))
        .option("startingOffsets", json.dumps({topic: {"0": begin}}))
        .option("failOnDataLoss", "true")
    )
    for name, value in kafka_options(config.kafka).items():
        reader = reader.option(name, value)
    return (
        reader.load()
        .writeStream.foreachBatch(handler)
        .option("checkpointLocation", scratch)
        .trigger(processingTime=f"{config.tuning.trigger_interval.total_seconds() * 1000:.0f} milliseconds")
        .start()
    )


def _is_complete(kafka: KafkaLog, topic: str, progress: Progress | None) -> bool:
    """Whether capture's last word is that every table is copied, and the destination has all that it says."""
    if progress is None or not all(isinstance(table.phase, Ready | Errored) for table in progress.tables.values()):
        return False
    last = next(iter(kafka.last(topic, 1)), None)
    if last is None or last.key != COMPLETES or last.offset >= progress.log_offset:
        return False
    if Checkpoint.decode(last.value or b"").log_id != progress.log_id:
        return False
    held = sorted(str(name) for name, table in progress.tables.items() if isinstance(table.phase, Errored))
    if held:
        raise TablesHeld(f"Every table is copied and applied, except {', '.join(held)}.")
    log.info("every table is copied and applied, ending")
    return True


def _watch(query: StreamingQuery, handler: _Handler, stop: threading.Event, over: Callable[[], bool]) -> None:
    while query.isActive and not stop.is_set():
        stop.wait(_WAIT_SECONDS)
        if over():
            return
    if stop.is_set():
        handler.idle.wait()
        return
    if isinstance(handler.failure, PenstockError):
        raise handler.failure
    if handler.failure is not None:
        raise QueryFailed(f"A batch failed with {type(handler.failure).__name__}.") from handler.failure
    raise _query_error(query.exception())


def _query_error(error: PySparkException | None) -> LogError:
    text = str(error)
    if "UnknownTopicOrPartition" in text:
        return TopicMissing("The checkpoints topic was deleted while apply read it.")
    return QueryFailed(f"Spark's query ended: {(text.strip().splitlines() or ['no reason given'])[0][:300]}")


def _begin(kafka: KafkaLog, topics: Topics, stored: Progress | None) -> tuple[int, Progress | None]:
    """The first checkpoint record to read. Offsets are hints: topics that were recreated are read from their beginning.

    They were not if the log of the destination is the oldest there, or stands at the destination's place: before it may
    lie the log of a source that was replaced."""
    topic = topics.checkpoints
    first = kafka.begins([topic])[topic][0]
    if stored is None:
        if first > 0:
            log.warning("the log no longer reaches back to its beginning: resync the tables that do not appear")
        return first, None
    place, end = max(first, stored.log_offset - 1), kafka.ends([topic])[topic][0]
    found = [*kafka.read(topic, first, min(first + 1, end)), *kafka.read(topic, place, min(place + 2, end))]
    same_log = any(Checkpoint.decode(record.value or b"").log_id == stored.log_id for record in found)
    begin = max(first, stored.log_offset) if same_log else first
    return begin, replace(stored, log_offset=begin)


def _wait_for_capture(kafka: KafkaLog, topics: Topics, stop: threading.Event) -> bool:
    """Apply may be started first: it waits until capture has made the topics. False: told to stop meanwhile."""
    told = False
    wanted = {topics.checkpoints, topics.schemas, topics.feedback}
    while not stop.is_set():
        if wanted <= kafka.topics():
            return True
        if not told:
            log.info("waiting for capture to create the topics", topic=topics.checkpoints)
            told = True
        stop.wait(_TOPIC_SECONDS)
    return False
