"""A wall clock that goes back under apply: Spark looks for new checkpoints at times of day, and would wait for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos_suite.clocks import Clock, made_library
from tests.conftest import MakePipeline
from tests.support.eventually import eventually

HOUR = 3600.0


@pytest.mark.further
def test_apply_goes_on_when_its_clock_goes_back_by_an_hour(make_pipeline: MakePipeline, tmp_path: Path) -> None:
    library = made_library(tmp_path)
    if library.why_not is not None:
        pytest.skip(library.why_not)
    clock = Clock(library, tmp_path / "clock")
    pipeline = make_pipeline()
    pipeline.sql("create table t (id bigint primary key)", "insert into t values (1)")
    pipeline.publish("t")
    pipeline.start_capture(PENSTOCK_CAPTURE__IDLE_INTERVAL="3s")  # so that a batch of Spark ends between
    pipeline.start_apply_process(**clock.environment)
    pipeline.assert_equal("t")
    assert pipeline.apply is not None
    pid = pipeline.apply.process.pid
    eventually(lambda: clock.is_read_by(pid), what="a clock of apply that can jump")

    clock.jump(-HOUR)
    pipeline.sql("insert into t values (2)")

    pipeline.assert_equal("t", seconds=60.0)
