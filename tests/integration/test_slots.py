"""A slot that is gone, lost or somebody else's: capture continues exactly, or stops with a reason and a solution."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psycopg
import pytest

from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres, StopMode
from schemas.lsn import Lsn
from stores.sqlite import SqliteStore
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline
from tests.support.postgres_version import VERSION

RESYNC = {"PENSTOCK_CAPTURE__ON_LOST_SLOT": "resync"}
MakeCapture = Callable[..., Pipeline]


@pytest.fixture(scope="module")
def server() -> Iterator[LocalPostgres]:
    with LocalPostgres(VERSION, settings={"max_wal_size": "64MB", "min_wal_size": "32MB"}) as server:
        yield server


@pytest.fixture
def make_capture(server: LocalPostgres, kafka: LocalKafka, tmp_path: Path) -> Iterator[MakeCapture]:
    """Pipelines on a server of this module, each with a published table `t` of 100 rows; capture is not started."""
    with ExitStack() as stack:

        def make(name: str = "") -> Pipeline:
            name = name or f"t{secrets.token_hex(4)}"
            folder = tmp_path / name
            folder.mkdir()
            pipeline = stack.enter_context(Pipeline(name, server, kafka, None, folder))
            fill(pipeline)
            return pipeline

        yield make


def fill(pipeline: Pipeline) -> None:
    pipeline.sql(
        "create table t (id bigint primary key, a text)",
        "insert into t select i, 'row ' || i from generate_series(1, 100) i",
    )
    pipeline.publish("t")


def slot_column(pipeline: Pipeline, column: str) -> object:
    row = pipeline.source.execute(
        f"select {column} from pg_replication_slots where slot_name = %s",
        [f"penstock_{pipeline.name}"],
    ).fetchone()
    return row[0] if row else None


def lose_slot(pipeline: Pipeline) -> None:
    """More WAL than a slot may hold, until Postgres takes the slot away."""
    pipeline.sql("alter system set max_slot_wal_keep_size = '1MB'", "select pg_reload_conf()")
    try:

        def lost() -> bool:
            pipeline.sql("insert into t select max(id) + 1, 'unseen' from t", "select pg_switch_wal()", "checkpoint")
            return slot_column(pipeline, "wal_status") == "lost"

        eventually(lost, what="the slot to be lost")
    finally:
        pipeline.sql("alter system reset max_slot_wal_keep_size", "select pg_reload_conf()")


def test_a_slot_that_is_lost_under_a_running_capture_stops_it_and_resync_copies_anew(make_capture: MakeCapture) -> None:
    pipeline = make_capture()
    pipeline.start_capture()
    before = pipeline.assert_captured()

    assert pipeline.capture is not None
    pipeline.pause(pipeline.capture)
    lose_slot(pipeline)
    pipeline.resume(pipeline.capture)
    running = pipeline.refused()
    pipeline.start_capture()
    at_the_start = pipeline.refused()
    pipeline.start_capture(**RESYNC)
    after = pipeline.assert_captured()

    for refusal in (running, at_the_start):
        assert f"Postgres took slot penstock_{pipeline.name} away" in refusal.reason
        assert "wal_removed" in refusal.reason or VERSION < 17, "older servers do not tell why"
        assert 'on_lost_slot = "resync"' in refusal.solution
        assert "max_slot_wal_keep_size" in refusal.solution
    assert after.log_id != before.log_id
    assert slot_column(pipeline, "wal_status") == "reserved"


def test_a_missing_slot_is_refused_and_resync_copies_anew(make_capture: MakeCapture) -> None:
    pipeline = make_capture()
    pipeline.start_capture()
    before = pipeline.assert_captured()
    pipeline.stop_capture()
    pipeline.sql(
        f"select pg_drop_replication_slot('penstock_{pipeline.name}')", "insert into t values (1000, 'unseen')"
    )

    pipeline.start_capture()
    refusal = pipeline.refused()
    pipeline.start_capture(**RESYNC)
    after = pipeline.assert_captured()

    assert f"Slot penstock_{pipeline.name} is gone" in refusal.reason
    assert 'on_lost_slot = "resync"' in refusal.solution
    assert after.log_id != before.log_id


def test_a_slot_that_somebody_moved_past_the_last_checkpoint_is_refused(make_capture: MakeCapture) -> None:
    pipeline = make_capture()
    pipeline.start_capture()
    pipeline.assert_captured()
    pipeline.stop_capture()
    pipeline.sql("insert into t values (1000, 'unseen')")
    pipeline.sql(f"select pg_replication_slot_advance('penstock_{pipeline.name}', pg_current_wal_lsn())")

    pipeline.start_capture()
    refusal = pipeline.refused()
    pipeline.start_capture(**RESYNC)
    pipeline.assert_captured()

    assert "past the last checkpoint" in refusal.reason


def test_capture_that_stood_still_for_longer_than_wal_sender_timeout_goes_on(make_capture: MakeCapture) -> None:
    pipeline = make_capture()
    pipeline.sql(f"alter database {pipeline.name} set wal_sender_timeout = '1s'")
    pipeline.start_capture()
    before = pipeline.assert_captured()
    walsender = slot_column(pipeline, "active_pid")

    assert pipeline.capture is not None
    pipeline.pause(pipeline.capture)
    pipeline.sql("insert into t select i, 'while it stood still' from generate_series(101, 5000) i")
    eventually(lambda: slot_column(pipeline, "active_pid") is None, what="the walsender to give up")
    pipeline.resume(pipeline.capture)
    after = pipeline.assert_captured()

    assert pipeline.capture.process.poll() is None
    assert slot_column(pipeline, "active_pid") not in (None, walsender)
    assert (after.log_id, after.generation) == (before.log_id, before.generation)


def test_a_capture_whose_store_another_one_has_claimed_writes_nothing_there_and_begins_anew_with_the_slot(
    make_capture: MakeCapture,
) -> None:
    pipeline = make_capture()
    pipeline.start_capture()
    pipeline.assert_captured()

    with SqliteStore(Path(pipeline.config().capture_config().state_path)) as others:
        others.claim()
        pipeline.sql("create table later (id bigint primary key)", "insert into later values (1)")
        pipeline.sql(f"alter publication {pipeline.name} add table later")
        log = pipeline.folder / "capture0.log"
        eventually(lambda: "Another process has written to the store" in log.read_text(), what="the refusal")

    pipeline.assert_captured("later")
    pipeline.assert_captured()


def test_a_short_wal_sender_timeout_costs_no_connection(make_capture: MakeCapture) -> None:
    pipeline = make_capture()
    pipeline.sql(f"alter database {pipeline.name} set wal_sender_timeout = '1s'")
    pipeline.start_capture()
    pipeline.assert_captured()
    walsender = slot_column(pipeline, "active_pid")

    for number in range(1, 4):
        pipeline.sql("select pg_sleep(1)", f"insert into t values (1000 + {number}, 'now and then')")
    pipeline.assert_captured()

    assert slot_column(pipeline, "active_pid") == walsender


@pytest.mark.parametrize("end", ["fast", "immediate", "kill"])
def test_a_restart_of_the_server_is_waited_out(make_capture: MakeCapture, server: LocalPostgres, end: str) -> None:
    pipeline = make_capture()
    pipeline.start_capture(PENSTOCK_ACKNOWLEDGE__POLICY="kafka")  # or a fast stop would wait for a destination
    before = pipeline.assert_captured()
    pipeline.sql("insert into t select i, 'just before' from generate_series(101, 3000) i")

    stop = {"fast": server.stop, "immediate": lambda: server.stop(StopMode.IMMEDIATE), "kill": server.kill}[end]
    stop()
    server.start()
    pipeline.reconnect()
    pipeline.sql("insert into t values (5000, 'after')")
    after = pipeline.assert_captured()

    assert pipeline.capture is not None
    assert pipeline.capture.process.poll() is None
    assert (after.log_id, after.generation) == (before.log_id, before.generation)


def test_two_pipelines_of_which_one_name_begins_with_the_other_leave_each_other_alone(
    make_capture: MakeCapture, server: LocalPostgres
) -> None:
    shop = make_capture()
    longer = make_capture(f"{shop.name}_copy")
    on_the_same = {"PENSTOCK_SOURCE__DSN": server.dsn(shop.name), "PENSTOCK_SOURCE__PUBLICATION": shop.name}
    shop.start_capture()
    longer.start_capture(**on_the_same)
    longer.source.close()
    longer.source = psycopg.connect(server.dsn(shop.name), autocommit=True)
    shop.assert_captured()
    longer.assert_captured()

    shop.stop_capture()
    shop.sql("insert into t select i, 'one stands still' from generate_series(101, 1000) i")
    longer.assert_captured()
    longer.stop_capture()
    shop.start_capture()
    shop.assert_captured()
    longer.start_capture(**on_the_same)
    longer.assert_captured()


def test_wal_of_other_databases_moves_the_slot_without_a_heartbeat(make_capture: MakeCapture) -> None:
    pipeline, other = make_capture(), make_capture()
    pipeline.start_capture(PENSTOCK_ACKNOWLEDGE__POLICY="kafka")
    pipeline.assert_captured()
    held = slot_column(pipeline, "restart_lsn")

    for first in (1001, 2001, 3001):
        other.sql(f"insert into t select i, 'elsewhere' from generate_series({first}, {first} + 999) i", "checkpoint")
        target = other.wal_lsn()
        eventually(partial(reached, pipeline, target), seconds=15, what="the slot to follow")

    eventually(lambda: slot_column(pipeline, "restart_lsn") != held, seconds=15, what="the WAL to be let go")


def reached(pipeline: Pipeline, lsn: Lsn) -> bool:
    return pipeline.confirmed_lsn() >= lsn


def test_a_slot_that_was_idle_for_too_long_is_refused_with_the_setting_that_took_it(
    kafka: LocalKafka, tmp_path: Path
) -> None:
    with LocalPostgres(18) as server, Pipeline(f"t{secrets.token_hex(4)}", server, kafka, None, tmp_path) as pipeline:
        fill(pipeline)
        pipeline.start_capture()
        pipeline.assert_captured()
        pipeline.stop_capture()
        pipeline.sql("alter system set idle_replication_slot_timeout = '1s'", "select pg_reload_conf()")

        def lost() -> bool:
            pipeline.sql("checkpoint")
            return slot_column(pipeline, "wal_status") == "lost"

        eventually(lost, what="the slot to be taken away")
        pipeline.start_capture()
        refusal = pipeline.refused()

    assert "(idle_timeout)" in refusal.reason
    assert "Raise idle_replication_slot_timeout" in refusal.solution
