"""SIGTERM in the middle of everything: capture, apply and `penstock run` end within ten seconds, with exit code 0 and
nothing left behind, and the next start is exact.

Docker kills after ten seconds, so whoever takes longer is killed anyway."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from console.control import send_command
from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from console.stages import Stage
from schemas.control import Resync
from schemas.failpoints import VARIABLE
from schemas.identifiers import TableName
from tests.conftest import MakePipeline
from tests.support.captured import Captured, MakeCaptured
from tests.support.destinations import RunningApply, add_section, settle
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline
from tests.support.processes import alive, descendants, frozen
from tests.support.proxy import Proxy

SECONDS = 10.0
ROWS = 8_000
TABLE = (
    "create table t (id bigint primary key, a text)",
    f"insert into t select i, md5(i::text) from generate_series(1, {ROWS}) i",
)
SLOW_COPY = {"PENSTOCK_CAPTURE__COPY_MAX_RATE": "100kB", "PENSTOCK_CAPTURE__COPY_RANGE_SIZE": "128KiB"}
SLOW_STREAM = {"PENSTOCK_KERNEL": "reference"}
NOT_DRAINED = "did not drain in time"


def stop(stage: Stage | None) -> None:
    assert stage is not None
    _ends_within_ten_seconds(stage.process.pid, stage.process.terminate, stage.process.wait)


def _ends_within_ten_seconds(pid: int, terminate: Callable[[], None], wait: Callable[[float], int]) -> None:
    began, started = time.monotonic(), [pid, *descendants(pid)]
    terminate()
    code = wait(SECONDS)
    left = SECONDS - (time.monotonic() - began)
    eventually(lambda: not any(map(alive, started)), seconds=max(left, 0.1), what="the end of all that it started")
    assert code == 0


def is_told(pipeline: Pipeline, words: str) -> bool:
    return any(words in log.read_text() for log in pipeline.folder.glob("*.log"))


def assert_goes_on(pipeline: Pipeline, captured: Captured) -> None:
    pipeline.start_capture()
    captured.assert_rows("t")


def test_capture_stops_in_the_middle_of_a_copy_and_of_a_resync(captured: MakeCaptured) -> None:
    pipeline, log = captured(*TABLE, publish="for table t", **SLOW_COPY)
    eventually(lambda: pipeline.copied_records("t") > 0, what="a part of the copy")

    stop(pipeline.capture)
    copied = pipeline.copied_records("t")
    assert_goes_on(pipeline, log)
    assert copied < ROWS, "the stop came too late to be in the middle"

    stop(pipeline.capture)
    pipeline.start_capture(**SLOW_COPY)
    send_command(pipeline.config(), Resync(TableName("public", "t")))
    eventually(lambda: len(log.generations("t")) > 1 and 0 < pipeline.copied_records("t") < ROWS, what="half a resync")
    stop(pipeline.capture)
    assert_goes_on(pipeline, log)
    assert not is_told(pipeline, NOT_DRAINED)


def test_capture_stops_in_the_middle_of_a_huge_transaction(captured: MakeCaptured) -> None:
    pipeline, log = captured(*TABLE, publish="for table t", **SLOW_STREAM)
    log.assert_reached()
    topic = pipeline.change_topic("t")

    pipeline.sql(f"insert into t select i, 'in one' from generate_series({ROWS + 1}, {ROWS + 40_000}) i")
    eventually(lambda: pipeline.records(topic) > 1_000, what="a part of the transaction")
    stop(pipeline.capture)
    sent = pipeline.records(topic)
    pipeline.sql(f"delete from t where id > {ROWS + 100}")
    pipeline.start_capture()

    assert sent < 40_000, "the stop came too late to be in the middle"
    log.assert_reached()
    assert not is_told(pipeline, NOT_DRAINED)


def test_capture_stops_while_the_broker_is_silent(captured: MakeCaptured, kafka: LocalKafka) -> None:
    pipeline, log = captured(*TABLE, publish="for table t")
    log.assert_rows("t")

    with frozen(kafka.pid):
        pipeline.sql("update t set a = 'unheard' where id < 100")
        time.sleep(1)  # a checkpoint is due after a fifth of that
        stop(pipeline.capture)

    assert_goes_on(pipeline, log)


def silent(proxy: Proxy, _: ExitStack) -> None:
    proxy.hold()


def refusing(_: Proxy, opened: ExitStack) -> None:
    """Nobody listens there any more: capture tries to open its next epoch, again and again."""
    opened.close()


@pytest.mark.parametrize("away", [silent, refusing])
def test_capture_stops_while_postgres_is_away(
    away: Callable[[Proxy, ExitStack], None], captured: MakeCaptured, postgres: LocalPostgres
) -> None:
    pipeline, log = captured(*TABLE, publish="for table t")
    log.assert_rows("t")
    stop(pipeline.capture)
    with ExitStack() as opened:
        proxy = opened.enter_context(Proxy(postgres.port))
        pipeline.start_capture(PENSTOCK_SOURCE__DSN=make_conninfo(postgres.dsn(pipeline.name), port=proxy.port))
        pipeline.sql("update t set a = 'through the proxy' where id < 10")
        log.assert_reached()

        away(proxy, opened)
        pipeline.sql("update t set a = 'unheard' where id < 100")
        time.sleep(1)
        stop(pipeline.capture)

    assert not is_told(pipeline, NOT_DRAINED)
    assert_goes_on(pipeline, log)


def test_capture_stops_while_it_opens_an_epoch(captured: MakeCaptured) -> None:
    """Whatever it waits for there: it hangs."""
    pipeline, log = captured(*TABLE, publish="for table t", **{VARIABLE: "checkpoint.opening=hang"})
    eventually(lambda: is_told(pipeline, "checkpoint.opening"), what="the failpoint")

    stop(pipeline.capture)

    assert is_told(pipeline, NOT_DRAINED)
    assert_goes_on(pipeline, log)


@pytest.mark.further
def test_apply_stops_in_the_middle_of_a_copy(make_pipeline: MakePipeline) -> None:
    """What it does there takes longer than anybody would wait: it hangs, with all of Spark beside it."""
    pipeline = make_pipeline()
    pipeline.sql(*TABLE)
    pipeline.publish("t")
    pipeline.start_capture()
    pipeline.start_apply_process(**{VARIABLE: "apply.copy_written=hang"})
    eventually(lambda: is_told(pipeline, "apply.copy_written"), what="the failpoint")

    stop(pipeline.apply)

    pipeline.start_apply()
    pipeline.assert_equal("t")


@pytest.mark.further
def test_apply_stops_while_its_postgres_is_silent(
    make_pipeline: MakePipeline, postgres: LocalPostgres, spark: SparkSession
) -> None:
    pipeline = make_pipeline()
    pipeline.sql(*TABLE, f'create database "{pipeline.name}_mirror"')
    pipeline.publish("t")
    dsn = postgres.dsn(f"{pipeline.name}_mirror")
    with Proxy(postgres.port) as proxy:
        add_section(pipeline, "mirror", 'type = "postgres"', f'dsn = "{make_conninfo(dsn, port=proxy.port)}"')
        pipeline.start_capture()
        pipeline.start_apply_process("mirror")
        settle(pipeline, "mirror", ["t"])

        proxy.hold()
        pipeline.sql("update t set a = 'unheard' where id < 100")
        time.sleep(1)
        stop(pipeline.apply)

        proxy.heal()
        with RunningApply(pipeline, "mirror", spark) as applied, psycopg.connect(dsn, autocommit=True) as mirror:
            settle(pipeline, "mirror", ["t"], applied)
            rows = mirror.execute("select * from public.t order by id").fetchall()
    assert rows == pipeline.source.execute("select * from t order by id").fetchall()
    pipeline.sql(f'drop database "{pipeline.name}_mirror" with (force)')


@contextmanager
def run(pipeline: Pipeline, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """`penstock run`, which is stopped in the block."""
    with Path(pipeline.folder / "run.log").open("wb") as log:
        command = [sys.executable, "-m", "console", "run", "-c", str(pipeline.file)]
        process = subprocess.Popen(command, stderr=log, env={**os.environ, **environment}, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.further
def test_penstock_run_stops_while_an_interval_is_written(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline()
    pipeline.sql(*TABLE)
    pipeline.publish("t")

    with run(pipeline, **{VARIABLE: "duckdb.deleted=hang"}) as process:
        eventually(lambda: pipeline.known_phase("t") == "Ready", what="the copy")
        pipeline.sql("update t set a = 'half' where id < 100")
        eventually(lambda: is_told(pipeline, "duckdb.deleted"), what="the failpoint")
        _ends_within_ten_seconds(process.pid, process.terminate, process.wait)

    assert pipeline.lake("select count(*) from public.t where a = 'half'") == [(0,)]
    pipeline.start()
    pipeline.assert_equal("t")


@pytest.mark.further
def test_penstock_run_stops_while_the_broker_is_silent(make_pipeline: MakePipeline, kafka: LocalKafka) -> None:
    pipeline = make_pipeline()
    pipeline.sql(*TABLE)
    pipeline.publish("t")

    with run(pipeline) as process:
        eventually(lambda: pipeline.known_phase("t") == "Ready", what="the copy")
        with frozen(kafka.pid):
            pipeline.sql("update t set a = 'unheard' where id < 100")
            time.sleep(1)
            _ends_within_ten_seconds(process.pid, process.terminate, process.wait)

    pipeline.start()
    pipeline.assert_equal("t")
