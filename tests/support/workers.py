"""The processes that stages start: those in which capture copies, and the JVM of apply."""

from __future__ import annotations

import os
import signal

from capture.table_sync.nursery import NAME
from console.stages import Stage
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline
from tests.support.processes import children


def workers_of(pipeline: Pipeline) -> list[int]:
    return children(nursery_of(pipeline), NAME)


def nursery_of(pipeline: Pipeline) -> int:
    (nursery,) = children(_pid(pipeline.capture), NAME)
    return nursery


def kill_a_worker(pipeline: Pipeline, table: str) -> None:
    """One of two, in the middle of a range: it is stopped first, and gets a range if it has none."""
    victim = workers_of(pipeline)[0]
    os.kill(victim, signal.SIGSTOP)
    copied = pipeline.copied_records(table)
    eventually(lambda: pipeline.copied_records(table) > copied, what="the other worker to go on")
    os.kill(victim, signal.SIGKILL)


def jvm_of(pipeline: Pipeline) -> int:
    (jvm,) = children(_pid(pipeline.apply), "java")
    return jvm


def _pid(stage: Stage | None) -> int:
    assert stage is not None
    return stage.process.pid
