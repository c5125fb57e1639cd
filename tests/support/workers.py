"""The processes that stages start: those in which capture copies, and the JVM of apply."""

from __future__ import annotations

from pathlib import Path

from console.stages import Stage
from tests.support.pipeline import Pipeline


def workers_of(pipeline: Pipeline) -> list[int]:
    return _children(pipeline.capture, b"spawn_main")


def jvm_of(pipeline: Pipeline) -> int:
    (jvm,) = _children(pipeline.apply, b"SparkSubmit")
    return jvm


def _children(stage: Stage | None, word: bytes) -> list[int]:
    """Those whose command line has the word."""
    assert stage is not None
    children = Path(f"/proc/{stage.process.pid}/task").glob("*/children")
    pids = [int(pid) for found in children for pid in found.read_text().split()]
    return [pid for pid in pids if word in Path(f"/proc/{pid}/cmdline").read_bytes()]
