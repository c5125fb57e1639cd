"""Apply without Spark's query: what `foreachBatch` would do, step by step in the thread of the test, on the session
that all tests share. A crash throws the Applier away; the next one begins with what the destination stored."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from pyspark.sql import SparkSession

from apply_spark.commands import CommandReader, first_command_of
from apply_spark.config import ApplyConfig
from apply_spark.destination import Destination
from apply_spark.micro_batch import Applier
from apply_spark.opened import Opened, made_parts, shown_destination, wait_for_capture
from apply_spark.progress import Progress
from apply_spark.run import _begin
from schemas.topics import Topics
from stores.kafka_log import KafkaLog
from stores.kafka_tail import Tail
from tests.support.failpoints import crashed


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


def apply_to_a_crash(config: ApplyConfig, spark: SparkSession, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apply goes on until it comes to a failpoint, and no further."""
    crashed(monkeypatch, place, lambda: _apply_for_ever(config, spark))


def _apply_for_ever(config: ApplyConfig, spark: SparkSession) -> None:
    with applying(config, shown_destination(config), spark) as due:
        while True:
            due()
            time.sleep(0.02)
