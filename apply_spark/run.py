"""Starts and stops the query: one Structured Streaming query on the checkpoints topic for each destination.

The query's own checkpoint directory is scratch: where to begin is part of the destination's progress.
"""

from __future__ import annotations

import itertools
import json
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import structlog
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from apply_spark.commands import CommandReader, first_command_of
from apply_spark.config import ApplyConfig, Ends
from apply_spark.destinations.spark_jvm import java_class, jvm
from apply_spark.errors import TablesHeld
from apply_spark.history import history, unreached
from apply_spark.joining import adapted
from apply_spark.micro_batch import Applier, Parts
from apply_spark.opened import Opened, made_parts, opened, wait_for_capture
from apply_spark.progress import Progress, TableProgress
from apply_spark.reach import log_end, log_of, without_copies
from apply_spark.read import kafka_options
from apply_spark.showing import Showing
from schemas.checkpoint import COMPLETES, Checkpoint
from schemas.errors import LogError, PenstockError
from schemas.lsn import NOWHERE
from schemas.phases import Errored, Ready
from schemas.topics import Topics
from stores.kafka_errors import BrokerUnreachable, TopicMissing, not_allowed
from stores.kafka_log import KafkaLog, Record
from stores.kafka_tail import Tail
from stores.small_topics import checkpoints

_WAIT_SECONDS = 0.2
_POLL_SECONDS = 0.02
_QUIET_SECONDS = 1.0
_LATE_SECONDS = 10.0
_MOST_RECORDS = 2000
_CLOCK = "None is needed. If it comes again, keep the clock of this host from going back."
_DENIED = re.compile(r"Not authorized to access topics: \[([^],]+)")

log = structlog.get_logger(__name__)


class QueryFailed(LogError):
    """Spark's query on the checkpoints topic ended by itself."""

    solution = "Look at the log above; check that the broker and the topics of this pipeline are there."


def run_apply(config: ApplyConfig, stop: threading.Event, spark: SparkSession | None = None) -> None:
    """Applies until `stop`, or until all is copied where that is the end; returns after the batch under way, raises
    PenstockError where it cannot go on.

    A session that is given is used and left running."""
    with opened(config, spark) as here:
        if wait_for_capture(here.kafka, Topics(config.pipeline), stop):
            _query_until(stop, config, here)


def _query_until(stop: threading.Event, config: ApplyConfig, here: Opened) -> None:
    topics = Topics(config.pipeline)
    with ExitStack() as stack:
        parts = stack.enter_context(made_parts(config, here))
        begin, stored = _begin(here, topics, parts)
        checkpoints = Tail(config.kafka, topics.checkpoints, begin)
        stack.callback(checkpoints.close)
        first_command = first_command_of(here.kafka, topics.control, stored)
        control = Tail(config.kafka, topics.control, first_command)
        stack.callback(control.close)
        applier = Applier(here.destination, stored, parts, first_command)
        late = config.tuning.trigger_interval.total_seconds() + _LATE_SECONDS
        handler = _Handler(applier, checkpoints, CommandReader(control, config.name), begin, stop, late)
        scratch = stack.enter_context(_scratch(here.spark))
        query = _start(here.spark, config, topics.checkpoints, begin, handler, scratch)
        stack.callback(_stop, query)
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
    """What Spark calls for each micro-batch. An error is kept and not raised: on its way through the JVM it would lose
    its type, and Spark would print all that led to it, which may hold row values.

    The batch says that there are new checkpoints. They are read here, which costs less than one more Spark job, and as
    long as more come the batch goes on: Spark writes two files for each, which takes longer than a small interval.
    Commands and tables that are to be tried again do not wait for checkpoints: between batches, `tend` sees to them.

    Spark begins a batch at a time of day: where the clock of the host goes back, it waits until that time comes again.
    So checkpoints for which it has not called after `late` seconds are taken in `tend`, until it calls."""

    def __init__(
        self,
        applier: Applier,
        checkpoints: Tail,
        commands: CommandReader,
        begin: int,
        stop: threading.Event,
        late: float,
    ) -> None:
        self.applier = applier
        self._checkpoints = checkpoints
        self._commands = commands
        self._turn = threading.Lock()
        self._stop = stop
        self._next_offset = begin
        self._waiting: list[Record] = []
        self._late = late
        self._waits_since: float | None = None
        self._alone = False
        self.failure: BaseException | None = None
        self.idle = threading.Event()
        self.idle.set()

    def __call__(self, _batch: DataFrame, _number: int) -> None:
        self.idle.clear()
        try:
            with self._turn, self._kept():
                self._waits_since, self._alone = None, False
                quiet_since = time.monotonic()
                while self._goes_on() and time.monotonic() - quiet_since < _QUIET_SECONDS:
                    if self._news():
                        self._take()
                        quiet_since = time.monotonic()
                    self._do_what_is_due()
                    self._stop.wait(0 if self._waiting else _POLL_SECONDS)
        finally:
            self.idle.set()

    def _goes_on(self) -> bool:
        """After a failure the applier does not know what the destination has."""
        return self.failure is None and not self._stop.is_set()

    def tend(self) -> None:
        """What is due without a batch, unless one is under way, which does the same."""
        if self._turn.acquire(blocking=False):
            try:
                with self._kept():
                    if self._goes_on():
                        if self._news() and self._is_overdue():
                            self._take()
                        self._do_what_is_due()
            finally:
                self._turn.release()

    def _take(self) -> None:
        records, self._waiting = self._waiting, []
        self.applier.take(records)

    def _is_overdue(self) -> bool:
        """Whether Spark should have called for what waits."""
        now = time.monotonic()
        if self._waits_since is None:
            self._waits_since = now
        if not self._alone and now - self._waits_since > self._late:
            self._alone = True
            log.warning("Spark's query does not look for checkpoints, they are taken without it", solution=_CLOCK)
        return self._alone

    def _do_what_is_due(self) -> None:
        for offset, command in self._commands.new():
            self.applier.obey(offset, command)
        self.applier.work(self._news)

    @contextmanager
    def _kept(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:  # noqa: BLE001 -- raised where apply is watched
            self.failure = error

    def _news(self) -> bool:
        """Whether something waits that is more urgent than a copy."""
        for record in itertools.islice(self._checkpoints.new(), _MOST_RECORDS - len(self._waiting)):
            if record.offset != self._next_offset:
                raise TopicMissing(f"The checkpoints topic goes on at {record.offset} instead of {self._next_offset}.")
            self._next_offset += 1
            self._waiting.append(record)
        return self._stop.is_set() or bool(self._waiting)


@contextmanager
def _scratch(spark: SparkSession) -> Iterator[str]:
    """A folder of the query. The JVM removes it where this process ends without a word."""
    with tempfile.TemporaryDirectory(prefix="penstock-query-") as folder:
        java = jvm(spark)
        hooks = java_class(java, "org.apache.spark.util.ShutdownHookManager")
        hooks.registerShutdownDeleteDir(java_class(java, "java.io.File")(folder))
        yield folder


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
        .option("checkpointLocation", Path(scratch).as_uri())  # here, whatever file system Spark's cluster has
        .trigger(processingTime=f"{config.tuning.trigger_interval.total_seconds() * 1000:.0f} milliseconds")
        .start()
    )


def _stop(query: StreamingQuery) -> None:
    """It does not stop in time where the broker is silent. That is not why apply ends, and must not hide the reason."""
    with suppress(Py4JJavaError):
        query.stop()


def _is_complete(kafka: KafkaLog, topic: str, progress: Progress | None) -> bool:
    """Whether capture's last word is that every table is copied, and the destination has all that it says."""
    if progress is None or not all(_is_settled(table) for table in progress.tables.values()):
        return False
    last = next(iter(kafka.last(topic, 1)), None)
    if last is None or last.key != COMPLETES or last.offset >= progress.log_offset:
        return False
    if last.read(Checkpoint.decode).log_id != progress.log_id:
        return False
    held = sorted(str(name) for name, table in progress.tables.items() if isinstance(table.shown, Errored))
    if held:
        raise TablesHeld(f"Every table is copied and applied, except {', '.join(held)}.")
    log.info("every table is copied and applied, ending")
    return True


def _is_settled(table: TableProgress) -> bool:
    """Whether it is at its end, or held until somebody helps."""
    match table.shown:
        case Ready() | Errored(next_try=None):
            return True
        case _:
            return False


def _watch(query: StreamingQuery, handler: _Handler, stop: threading.Event, over: Callable[[], bool]) -> None:
    while query.isActive and not stop.is_set() and handler.failure is None:
        stop.wait(_WAIT_SECONDS)
        handler.tend()
        if over():
            return
    if stop.is_set():
        handler.idle.wait()
        return
    if isinstance(handler.failure, PenstockError | Py4JNetworkError | ConnectionRefusedError):
        raise handler.failure
    if handler.failure is not None:
        raise _spark_error(
            handler.failure, f"A batch failed with {type(handler.failure).__name__}."
        ) from handler.failure
    ended = query.exception()
    lines = str(ended).strip().splitlines() or ["no reason given"]
    raise _spark_error(ended, f"Spark's query ended: {lines[0][:300]}")


def _spark_error(error: BaseException | None, reason: str) -> LogError:
    """The one place where an error of Spark, which may repeat row values, becomes ours."""
    text = str(error)
    if "UnknownTopicOrPartition" in text:
        return TopicMissing("A topic of the pipeline was deleted while apply read it.")
    if "Cannot fetch record for offset" in text:
        return BrokerUnreachable("No Kafka broker answered while Spark read a topic.")
    if "kafka.common.errors.TimeoutException" in text:
        return BrokerUnreachable("No Kafka broker answered while Spark asked how far a topic reaches.")
    denied = _DENIED.search(text)
    if denied is not None:
        return not_allowed(f"reading {denied[1]}", denied[1], "Read")
    return QueryFailed(reason)


def _without_copies(kafka: KafkaLog, topics: Topics, first: int, showing: Showing) -> Progress | None:
    """A new destination, where retention has cut the log: tables of which no copy is left are known, and held."""
    told = history(log_of(kafka, topics, log_end(kafka, topics)))
    found = without_copies(kafka, topics, told) if told is not None else {}
    reasons = {table: reason for table, reason in found.items() if showing.selects(table)}
    if told is None or not reasons:
        return None
    for table, reason in reasons.items():
        log.error("table cannot be filled", table=str(table), error=reason, solution=f"penstock resync {table}")
    tables = {table: unreached(table, reason, first) for table, reason in reasons.items()}
    return Progress(told.log_id, NOWHERE, None, first, 0, tables, showing=showing.told)


def _begin(here: Opened, topics: Topics, parts: Parts) -> tuple[int, Progress | None]:
    """The first checkpoint record to read. Offsets are hints: topics that were recreated are read from their beginning.

    They were not if the log of the destination is the oldest there, or stands at the destination's place: before it may
    lie the log of a source that was replaced."""
    kafka, stored, topic = here.kafka, here.stored, topics.checkpoints
    first = kafka.begins([topic])[topic][0]
    if stored is None:
        return first, _without_copies(kafka, topics, first, parts.showing) if first > 0 else None
    place, end = max(first, stored.log_offset - 1), kafka.ends([topic])[topic][0]
    found = [*kafka.read(topic, first, min(first + 1, end)), *kafka.read(topic, place, min(place + 2, end))]
    same_log = any(checkpoint.log_id == stored.log_id for _, checkpoint in checkpoints(found))
    begin = max(first, stored.log_offset) if same_log else first
    stored = replace(stored, log_offset=begin)
    if not same_log:
        return begin, stored
    wanted = adapted(stored, parts.showing, parts.shape, kafka, topics)
    if wanted is not stored:
        here.destination.save_progress(wanted)
    return begin, wanted
