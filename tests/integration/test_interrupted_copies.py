"""A copy that was interrupted and may not go on begins again as the next generation, and capture says why.

Where it may go on: tests/chaos/test_resumed_copies.py.
"""

from __future__ import annotations

import time

import pytest

from schemas.failpoints import VARIABLE
from tests.support.captured import Captured, MakeCaptured, reasons
from tests.support.copy_topic import logged
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline

ROWS = 6_000
SMALL_RANGES = {"PENSTOCK_CAPTURE__COPY_RANGE_SIZE": "64KiB"}
SLOW = {**SMALL_RANGES, "PENSTOCK_CAPTURE__COPY_MAX_RATE": "300kB"}
PLAIN = "create table t (id int primary key, a varchar(40))"


def a_copy_under_way(captured: MakeCaptured, table: str) -> tuple[Pipeline, Captured]:
    """Some of its ranges are finished, and it stands in a checkpoint."""
    rows = f"insert into t select i, md5(i::text) from generate_series(1, {ROWS}) i"
    pipeline, log = captured(table, rows, publish="for table t", **SLOW)
    eventually(lambda: log.generations("t"), what="a checkpoint that says so")
    eventually(lambda: pipeline.copied_records("t") > ROWS / 3, what="a part of the copy")
    return pipeline, log


@pytest.mark.parametrize(
    ("table", "between", "reason"),
    [
        ("create table t (id int, a varchar(40))", "insert into t values (1, 'again')", "no key"),
        ("create table t (id int primary key, a text)", "update t set a = 'x' where id < 10", "TOASTed values"),
        (PLAIN, "truncate t", "truncated or rewritten"),
        (PLAIN, "vacuum full t", "truncated or rewritten"),
    ],
    ids=["no key", "TOAST", "truncated", "rewritten"],
)
def test_a_copy_that_may_not_go_on_begins_again_and_says_why(
    captured: MakeCaptured, table: str, between: str, reason: str
) -> None:
    pipeline, log = a_copy_under_way(captured, table)

    pipeline.kill_capture()
    copied = pipeline.copied_records("t")
    pipeline.sql(between, "insert into t values (-1, 'meanwhile')")
    pipeline.start_capture(**SMALL_RANGES)

    assert copied < ROWS, "the kill came too late to be in the middle"
    log.assert_rows("t")
    assert reason in reasons(pipeline, "t")[-1]
    assert logged(pipeline, "table copy resumed", "t") == []
    assert len(log.generations("t")) == 2


def test_a_table_with_identity_full_goes_on_though_its_values_may_be_stored_apart(captured: MakeCaptured) -> None:
    pipeline, log = a_copy_under_way(
        captured, "create table t (id int primary key, a text); alter table t replica identity full"
    )

    pipeline.kill_capture()
    pipeline.sql(
        "update t set a = repeat(md5(id::text), 200) where id % 1000 = 0",
        "update t set id = -id where id % 1000 < 2",
        "delete from t where id between 100 and 110",
    )
    pipeline.start_capture(**SMALL_RANGES)

    log.assert_rows("t")
    assert len(logged(pipeline, "table copy resumed", "t")) == 1
    assert len(log.generations("t")) == 1


def test_a_copy_goes_on_with_the_ranges_that_it_was_divided_into_however_it_would_be_divided_by_now(
    captured: MakeCaptured,
) -> None:
    pipeline, log = a_copy_under_way(captured, PLAIN)

    pipeline.kill_capture()
    pipeline.sql(f"insert into t select i, 'meanwhile' from generate_series({ROWS + 1}, {ROWS + 300}) i")
    pipeline.start_capture(PENSTOCK_CAPTURE__COPY_RANGE_SIZE="160KiB")

    log.assert_rows("t")
    (started,) = logged(pipeline, "table copy started", "t")
    (resumed,) = logged(pipeline, "table copy resumed", "t")
    assert resumed["finished_ranges"] > 0
    assert resumed["ranges"] + resumed["finished_ranges"] == started["ranges"]


def test_a_copy_that_died_between_its_last_word_and_the_memory_of_it_is_not_read_again(captured: MakeCaptured) -> None:
    """An empty table, one of one row and one of dead rows only, whose ranges are many."""
    pipeline, log = captured(
        *(f"create table {table} (id int primary key, a varchar(200))" for table in ("empty", "single", "dead")),
        "insert into single values (1, 'alone')",
        "insert into dead select i, repeat('x', 200) from generate_series(1, 3000) i",
        "delete from dead",
        publish="for all tables",
        **SMALL_RANGES,
        **{VARIABLE: "copy.finish_written=kill"},
    )
    assert pipeline.capture is not None
    assert pipeline.capture.process.wait(60) == -9

    pipeline.sql("insert into dead values (1, 'alive')", "update single set a = 'changed'")
    pipeline.start_capture(**SMALL_RANGES)

    for table in ("empty", "single", "dead"):
        log.assert_rows(table)
    again = [table for table in ("empty", "single", "dead") if len(log.generations(table)) > 1]
    assert len(again) < 3, "the one whose last word was written needs no other copy"
    assert all("no range of it was finished" in reasons(pipeline, table)[-1] for table in again)


def test_a_copy_that_dies_after_every_range_comes_to_its_end(captured: MakeCaptured) -> None:
    """Each life finishes a range or two, and the last one none of those before."""
    pipeline, log = captured(
        PLAIN,
        "insert into t select i, md5(i::text) from generate_series(1, 6000) i",
        publish="for table t",
        **SLOW,
    )
    eventually(lambda: log.generations("t"), what="a checkpoint that says so")
    pipeline.kill_capture()
    for life in range(3):
        pipeline.start_capture(**SLOW, **{VARIABLE: "copy.range_remembered=kill"})
        assert pipeline.capture is not None
        if pipeline.capture.process.wait(60) != -9:
            pytest.fail(f"life {life} did not die")
        pipeline.sql(f"update t set a = 'in life {life}' where id % 100 = {life}")
    pipeline.start_capture(**SMALL_RANGES)

    log.assert_rows("t")


def test_the_rate_of_a_copy_is_kept(captured: MakeCaptured) -> None:
    rate = 200_000
    pipeline, _ = captured(
        PLAIN,
        f"insert into t select i, md5(i::text) from generate_series(1, {ROWS}) i",
        publish="for table t",
        **SMALL_RANGES,
        PENSTOCK_CAPTURE__COPY_MAX_RATE=f"{rate}B",
    )

    eventually(lambda: logged(pipeline, "table copy started", "t"), what="the beginning of the copy")
    began = time.monotonic()
    eventually(lambda: logged(pipeline, "table copy finished", "t"), what="its end")
    took = time.monotonic() - began

    size = logged(pipeline, "table copy finished", "t")[0]["byte_count"]
    assert 0.6 * size / rate < took < 2.0 * size / rate + 2.0
