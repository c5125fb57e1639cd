"""Apply without Spark's query: what `foreachBatch` would do, step by step in the thread of the test, on the session
that all tests share. A crash throws the Applier away; the next one begins with what the destination stored."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from pyspark.sql import SparkSession

from apply_spark.commands import CommandReader, first_command_of
from apply_spark.config import ApplyConfig
from apply_spark.destination import Destination
from apply_spark.micro_batch import Applier
from apply_spark.opened import Opened, made_parts, wait_for_capture
from apply_spark.progress import Progress
from apply_spark.run import _begin
from schemas.topics import Topics
from stores.kafka_log import KafkaLog, Tail


@contextmanager
def applying(
    config: ApplyConfig, destination: Destination, spark: SparkSession
) -> Iterator[Callable[[], Progress | None]]:
    """Gives what does all that is due; it returns how far the destination is then, None: nothing has come yet."""
    topics = Topics(config.pipeline)
    with ExitStack() as stack:
        stack.callback(destination.shutdown)
        stored = destination.startup()
        kafka = stack.enter_context(KafkaLog(config.kafka))
        assert wait_for_capture(kafka, topics, threading.Event())
        here = Opened(destination, stored, kafka, spark)
        parts = stack.enter_context(made_parts(config, here))
        begin, stored = _begin(here, topics, parts)
        first_command = first_command_of(kafka, topics.control, stored)
        checkpoints, control = (
            Tail(config.kafka, topics.checkpoints, begin),
            Tail(config.kafka, topics.control, first_command),
        )
        stack.callback(checkpoints.close)
        stack.callback(control.close)
        commands = CommandReader(control, config.name)
        applier = Applier(destination, stored, parts, first_command)

        def step() -> Progress | None:
            applier.take(checkpoints.new())
            for offset, command in commands.new():
                applier.obey(offset, command)
            applier.work(lambda: False)
            return applier.progress

        yield step
