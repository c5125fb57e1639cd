"""The processes in which capture copies."""

from __future__ import annotations

from pathlib import Path

from tests.support.pipeline import Pipeline


def workers_of(pipeline: Pipeline) -> list[int]:
    assert pipeline.capture is not None
    capture = pipeline.capture.process.pid
    children = Path(f"/proc/{capture}/task").glob("*/children")
    pids = [int(pid) for found in children for pid in found.read_text().split()]
    return [pid for pid in pids if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
