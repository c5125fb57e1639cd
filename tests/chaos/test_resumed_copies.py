"""A copy that is killed goes on where it was: finished ranges are not read again, and the destination is exact.

`make test-resume` runs the first test with two million rows and ten kills.
"""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import Callable

from schemas.lsn import Lsn
from tests.conftest import MakePipeline
from tests.support.captured import Captured
from tests.support.copy_topic import logged, readings
from tests.support.eventually import eventually
from tests.support.meanwhile import meanwhile
from tests.support.pipeline import Pipeline
from tests.support.workers import kill_a_worker

ROWS = int(os.environ.get("PENSTOCK_TEST_RESUME_ROWS", "60000"))
KILLS = int(os.environ.get("PENSTOCK_TEST_RESUME_KILLS", "2"))
WORKERS = 2
RECORD_BYTES = 150
SECONDS_BETWEEN_KILLS = 2
PACE = {
    "PENSTOCK_CAPTURE__COPY_WORKERS": str(WORKERS),
    "PENSTOCK_CAPTURE__COPY_RANGE_SIZE": "128KiB",
    "PENSTOCK_CAPTURE__COPY_MAX_RATE": f"{ROWS * RECORD_BYTES // (SECONDS_BETWEEN_KILLS * (KILLS + 1))}B",
}
"""There is time to hit the middle of a copy."""


def a_pipeline_that_copies(make_pipeline: MakePipeline, rows: int) -> Pipeline:
    """Its table has no column whose values could be stored apart."""
    pipeline = make_pipeline()
    pipeline.sql(
        "create table t (id bigint primary key, n int not null, note varchar(40))",
        f"insert into t select i, 0, md5(i::text) from generate_series(1, {rows}) i",
    )
    pipeline.publish()
    pipeline.start_capture(**PACE)
    pipeline.start_apply()
    eventually(lambda: Captured(pipeline).generations("t"), what="a checkpoint that announces the copy")
    return pipeline


def writes_all_over(pipeline: Pipeline, chance: random.Random) -> Callable[[int], None]:
    """Rows come, change, go, come back, and get other keys; freed room in early blocks is used again."""

    def write(step: int) -> None:
        first = chance.randrange(ROWS)
        moved = 1_000_000_000 + step * 100 - first
        pipeline.sql(
            f"update t set n = n + 1 where id between {first} and {first + 30}",
            f"delete from t where id between {first + 31} and {first + 40}",
            f"insert into t select {100_000_000 + step * 10} + i, {step}, 'new' from generate_series(0, 9) i",
            f"update t set id = {moved} + id where id between {first + 41} and {first + 45}",
            f"with gone as (delete from t where id = {first + 50} returning *) select count(*) from gone",
            f"insert into t values ({first + 50}, {step}, 'came back') on conflict (id) do nothing",
        )
        if step % 20 == 0:
            pipeline.sql("vacuum (truncate off) t")

    return write


def generation_of(pipeline: Pipeline) -> Lsn:
    """The only one that there was."""
    (started,) = logged(pipeline, "table copy started", "t")
    return Lsn.parse(started["generation"])


def test_a_copy_that_is_killed_again_and_again_goes_on_where_it_was_and_is_exact(make_pipeline: MakePipeline) -> None:
    seed = int(os.environ.get("PENSTOCK_TEST_SEED", secrets.randbits(32)))
    print(f"PENSTOCK_TEST_SEED={seed}")  # noqa: T201 -- shown by pytest when the test fails
    chance = random.Random(seed)  # noqa: S311 -- chance, not secrecy
    pipeline = a_pipeline_that_copies(make_pipeline, ROWS)

    with meanwhile(writes_all_over(pipeline, random.Random(seed)), pause=0.02):  # noqa: S311 -- likewise
        for kill in range(KILLS):
            moment = int(ROWS * (kill + chance.uniform(0.2, 0.8)) / (KILLS + 1))
            eventually(lambda moment=moment: pipeline.copied_records("t") >= moment, what=f"{moment} records")
            pipeline.kill_capture()
            pipeline.start_capture(**PACE)
        eventually(
            lambda: pipeline.known_phase("t") == "Ready", seconds=120 + ROWS / 10_000, what="a table that is ready"
        )

    pipeline.assert_equal("t")
    resumed = logged(pipeline, "table copy resumed", "t")
    done = [entry["finished_ranges"] for entry in resumed]
    ranges = logged(pipeline, "table copy started", "t")[0]["ranges"]
    read = readings(pipeline, "t", generation_of(pipeline))
    assert len(resumed) == KILLS, "a kill came too early or too late to be in the middle"
    assert done == sorted(done)
    assert done[0] > 0
    assert len({part for _, part in read}) == ranges
    assert len(read) - ranges <= KILLS * WORKERS, "a finished range was read again"
    print(f"{ranges} ranges, {len(read)} readings, {read.total()} records")  # noqa: T201 -- figures, with -s


def test_a_killed_worker_costs_the_ranges_under_way_and_no_generation(make_pipeline: MakePipeline) -> None:
    pipeline = a_pipeline_that_copies(make_pipeline, 30_000)
    eventually(lambda: pipeline.copied_records("t") > 10_000, what="a part of the copy")

    kill_a_worker(pipeline, "t")

    pipeline.assert_equal("t")
    read = readings(pipeline, "t", generation_of(pipeline))
    assert [entry["finished_ranges"] > 0 for entry in logged(pipeline, "table copy resumed", "t")] == [True]
    assert len(read) - len({part for _, part in read}) <= WORKERS
    assert pipeline.capture is not None
    assert pipeline.capture.process.poll() is None


def test_a_lost_connection_costs_the_ranges_under_way_and_no_generation(make_pipeline: MakePipeline) -> None:
    pipeline = a_pipeline_that_copies(make_pipeline, 30_000)
    eventually(lambda: pipeline.copied_records("t") > 10_000, what="a part of the copy")

    pipeline.sql(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where pid <> pg_backend_pid() and datname = current_database()"
    )
    pipeline.sql("update t set n = 1 where id % 10 = 0", "delete from t where id % 10 = 1")

    pipeline.assert_equal("t")
    assert len(logged(pipeline, "table copy resumed", "t")) == 1
    read = readings(pipeline, "t", generation_of(pipeline))
    assert len(read) - len({part for _, part in read}) <= WORKERS
