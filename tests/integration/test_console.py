"""The commands that people and programs ask a running pipeline with, and the demo."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from schemas.lsn import Lsn
from tests.conftest import MakePipeline
from tests.integration.test_bad_input import penstock
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline


@pytest.fixture(scope="module")
def running(make_shared_pipeline: MakePipeline) -> Pipeline:
    pipeline = make_shared_pipeline()
    pipeline.sql(
        "create table orders (id int primary key, a text)", "insert into orders select generate_series(1, 700)"
    )
    pipeline.publish()
    pipeline.start()
    pipeline.assert_equal("orders")
    return pipeline


def test_status_tells_every_table_its_phase_rows_position_and_lag_and_who_holds_wal(running: Pipeline) -> None:
    done = penstock("status", "-c", str(running.file), "--json")

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    table = report["destinations"]["lake"]["tables"]["public.orders"]
    assert table["phase"] == "Ready"
    assert table["rows_copied"] == 700
    assert {"position", "generation", "lag_bytes", "lag_seconds"} <= table.keys()
    assert table["lag_seconds"] < 30
    assert report["destinations"]["lake"]["lag_bytes"] >= 0
    assert report["slot"]["wal_held_bytes"] >= 0
    assert isinstance(report["slot"]["held_by"], list)
    assert report["capture"]["checkpoint_lsn"]


def test_status_tells_share_and_time_left_of_a_copy_that_is_under_way(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline()
    pipeline.sql(
        "create table slow (id int primary key, a varchar(40))",
        "insert into slow select i, md5(i::text) from generate_series(1, 20000) i",
    )
    pipeline.publish()
    pipeline.start_capture(PENSTOCK_CAPTURE__COPY_MAX_RATE="100kB")
    pipeline.start_apply()

    def copying() -> dict[str, Any] | None:
        report = json.loads(penstock("status", "-c", str(pipeline.file), "--json").stdout)
        table: dict[str, Any] = report["destinations"]["lake"]["tables"].get("public.slow", {})
        return table if (table.get("copy_seconds_left") or 0) > 1 else None  # by the first rows it may be too little

    facts = eventually(copying, what="the time that is left of the copy")

    expected = facts["rows_on_kafka"] / facts["copy_share"]
    assert 10_000 < expected < 40_000
    assert facts["copy_seconds_left"] < 300
    assert facts["phase"] == "Init"


def test_status_names_the_destination_that_holds_wal(running: Pipeline) -> None:
    running.stop_apply()
    running.sql("insert into orders select generate_series(2000, 2100)")
    target = running.wal_lsn()

    def report() -> dict[str, object] | None:
        found = json.loads(penstock("status", "-c", str(running.file), "--json").stdout)
        caught_up = found["capture"]["lag_bytes"] is not None and found["capture"]["lag_bytes"] < 1000
        return found if caught_up else None

    found = eventually(report, what="capture to have written a checkpoint past the insert")
    running.start_apply()

    assert found["slot"]["held_by"] == ["lake"]  # type: ignore[index]
    assert target
    running.assert_equal("orders")


def test_wait_returns_when_the_destination_has_what_was_committed(running: Pipeline) -> None:
    running.sql("insert into orders values (5000, 'read your writes')")

    done = penstock("wait", "-c", str(running.file), "--destination", "lake", "--lsn", str(running.wal_lsn()))

    assert done.returncode == 0, done.stderr
    assert running.lake("select a from public.orders where id = 5000") == [("read your writes",)]


def test_wait_fails_when_the_time_is_up(running: Pipeline) -> None:
    done = penstock("wait", "-c", str(running.file), "--lsn", "FFFF/0", "--timeout", "1")

    assert done.returncode == 1
    assert "solution:" in done.stderr


def test_resync_makes_a_new_copy_of_one_table(running: Pipeline) -> None:
    before = running.generation("orders")

    done = penstock("resync", "public.orders", "-c", str(running.file))

    assert done.returncode == 0, done.stderr
    eventually(lambda: running.generation("orders") > before, what="a new generation")
    eventually(lambda: running.known_phase("orders") == "Ready", what="the new copy to be ready")
    running.assert_equal("orders")


def test_a_table_that_the_destination_cannot_hold_stops_alone_until_it_is_resynced(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline()
    pipeline.sql("create table good (id int primary key)", "create table bad (id int primary key, n int[])")
    pipeline.publish()
    pipeline.start()
    pipeline.assert_equal("good", "bad")

    pipeline.sql("insert into bad values (1, '{7}'), (2, '{{40961,2}}')", "insert into good values (1)")
    eventually(lambda: pipeline.known_phase("bad") == "Errored", what="the table to stop")
    pipeline.sql("insert into good values (2)", "insert into bad values (3, '{}')")
    eventually(lambda: pipeline.lake("select count(*) from public.good") == [(2,)], what="the other table to go on")
    report = json.loads(penstock("status", "-c", str(pipeline.file), "--json").stdout)
    table = report["destinations"]["lake"]["tables"]["public.bad"]
    assert "column n (integer[])" in table["reason"]
    assert "40961" not in table["reason"]
    assert "penstock resync" in table["solution"]
    eventually(lambda: pipeline.confirmed_lsn() >= Lsn.parse(report["source"]["wal_lsn"]), what="WAL to be released")

    pipeline.sql("delete from bad where id = 2")
    assert penstock("resync", "public.bad", "-c", str(pipeline.file)).returncode == 0
    eventually(lambda: pipeline.known_phase("bad") == "Ready", what="the table to be back")

    pipeline.assert_equal("good", "bad")


def test_the_demo_proves_that_source_and_destination_are_equal(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "console", "demo", "--seconds", "5"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    for table in ("customers", "products", "orders", "order_items", "events"):
        assert table in done.stdout
