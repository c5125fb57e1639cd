"""Which WAL a real Postgres keeps under each policy, and what operators are told of it. The test is the destination."""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from capture.checkpoints import last_accepted
from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from schemas.feedback import Feedback
from schemas.lsn import Lsn
from schemas.topics import Topics
from stores.kafka_log import KafkaLog, durable_producer
from tests.integration.test_bad_input import penstock
from tests.support.eventually import eventually
from tests.support.meanwhile import meanwhile
from tests.support.pipeline import LAKE, Pipeline

MB = 1_000_000
GIB = 1024**3
MakeCapturing = Callable[..., Pipeline]


@pytest.fixture(scope="module")
def limited() -> Iterator[LocalPostgres]:
    with LocalPostgres(settings={"max_slot_wal_keep_size": "1GB"}) as server:
        yield server


@pytest.fixture
def make_capturing(limited: LocalPostgres, kafka: LocalKafka, tmp_path: Path) -> Iterator[MakeCapturing]:
    """A pipeline whose capture runs, with one table and a destination that says nothing by itself."""
    with ExitStack() as stack:

        def make(toml: str = "", **environment: str) -> Pipeline:
            name = f"t{secrets.token_hex(4)}"
            pipeline = stack.enter_context(Pipeline(name, limited, kafka, None, tmp_path, toml))
            pipeline.sql("create table filler (id bigserial primary key, a text)")
            pipeline.publish("filler")
            pipeline.start_capture(**environment)
            eventually(lambda: pipeline.checkpoint_lsn() > 0, what="the first checkpoint")
            return pipeline

        yield make


def write_a_megabyte(pipeline: Pipeline) -> Lsn:
    """About; returns the end of the WAL when capture has a checkpoint there."""
    pipeline.sql("insert into filler (a) select repeat(md5(random()::text), 3) from generate_series(1, 5000)")
    end = pipeline.wal_lsn()
    eventually(lambda: pipeline.checkpoint_lsn() >= end, what="a checkpoint after the insert")
    return end


def report(pipeline: Pipeline, lsn: Lsn) -> None:
    """What apply would say once the destination has everything before `lsn`."""
    config = pipeline.config()
    topics = Topics(config.pipeline)
    with KafkaLog(config.kafka) as log:
        last = last_accepted(log, topics.checkpoints)
    assert last is not None
    feedback = Feedback(LAKE, last[1].log_id, lsn, commit_ts=0, applied_at=time.time_ns() // 1000)
    producer = durable_producer(config.kafka, {})
    producer.produce(topics.feedback, feedback.encode(), LAKE.encode())
    assert producer.flush(30) == 0


def status(pipeline: Pipeline) -> dict[str, Any]:
    done = penstock("status", "-c", str(pipeline.file), "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def switch(pipeline: Pipeline, *arguments: str) -> None:
    done = penstock("acknowledge", *arguments, "-c", str(pipeline.file))
    assert done.returncode == 0, done.stderr


def events(pipeline: Pipeline) -> list[str]:
    logs = sorted(pipeline.folder.glob("capture*.log"))
    return [json.loads(line)["event"] for log in logs for line in log.read_text().splitlines() if line.startswith("{")]


def test_a_bound_releases_wal_of_a_silent_destination_and_keeps_what_it_may(make_capturing: MakeCapturing) -> None:
    pipeline = make_capturing('[acknowledge]\npolicy = "bounded"\nmax_wal = "4MB"')
    start = pipeline.confirmed_lsn()
    report(pipeline, start)
    first = write_a_megabyte(pipeline)
    assert pipeline.confirmed_lsn() == start, "within the bound the destination is waited for"

    while (end := write_a_megabyte(pipeline)) < start + 10 * MB:
        pass

    eventually(lambda: end - pipeline.confirmed_lsn() <= 4 * MB, what="WAL to be released")
    assert first < pipeline.confirmed_lsn() <= end - 1.5 * MB, "no more than was needed"
    assert pipeline.confirmed_lsn() <= pipeline.checkpoint_lsn()
    warning = "destination is further behind than max_wal, letting go of WAL that only kafka has"
    assert events(pipeline).count(warning) == 1
    assert status(pipeline)["slot"]["held_by"] == ["lake"]

    report(pipeline, pipeline.checkpoint_lsn())
    eventually(lambda: pipeline.confirmed_lsn() >= end, what="the slot to follow the destination again")
    assert events(pipeline).count("destination is within max_wal again") == 1
    assert pipeline.stop_capture() == 0


def test_the_policy_is_switched_while_capture_runs_and_stays_so_over_a_restart(make_capturing: MakeCapturing) -> None:
    pipeline = make_capturing()
    start = pipeline.confirmed_lsn()
    end = write_a_megabyte(pipeline)
    assert pipeline.confirmed_lsn() == start

    switch(pipeline, "kafka")
    eventually(lambda: pipeline.confirmed_lsn() >= end, what="WAL to go as soon as Kafka has it")
    eventually(
        lambda: status(pipeline)["acknowledge"] == {"policy": "kafka", "max_wal_bytes": None, "switched": True},
        what="status to tell the policy in force",
    )

    assert pipeline.stop_capture() == 0
    pipeline.start_capture()
    end = write_a_megabyte(pipeline)
    eventually(lambda: pipeline.confirmed_lsn() >= end, what="the switched policy to hold after a restart")

    switch(pipeline, "configured")
    eventually(lambda: not status(pipeline)["acknowledge"]["switched"], what="the configured policy to be back")
    let_go = pipeline.confirmed_lsn()
    end = write_a_megabyte(pipeline)
    report(pipeline, pipeline.checkpoint_lsn())
    eventually(lambda: pipeline.confirmed_lsn() >= end, what="the slot to follow the destination")
    end = write_a_megabyte(pipeline)
    assert let_go < pipeline.confirmed_lsn() < end, "the destination has not reported the rest"

    switch(pipeline, "bounded", "--max-wal", "2MB")
    before = pipeline.confirmed_lsn()
    while (end := write_a_megabyte(pipeline)) < before + 5 * MB:
        pass
    eventually(lambda: end - pipeline.confirmed_lsn() <= 2 * MB, what="the bound to release WAL")
    assert pipeline.confirmed_lsn() < end
    assert pipeline.stop_capture() == 0


def test_status_and_metrics_forecast_the_limit_and_name_who_holds_wal(make_capturing: MakeCapturing) -> None:
    port = _free_port()
    pipeline = make_capturing(PENSTOCK_CAPTURE__METRICS_PORT=str(port))
    report(pipeline, pipeline.confirmed_lsn())

    def write(_step: int) -> None:
        pipeline.sql("insert into filler (a) select repeat(md5(random()::text), 3) from generate_series(1, 500)")

    with meanwhile(write, pause=0.05):
        slot = eventually(lambda: _with_forecast(status(pipeline)["slot"]), what="a forecast in the status")
        words = penstock("status", "-c", str(pipeline.file)).stdout
        metrics = eventually(lambda: _with_time(_metrics(port)), what="a forecast in the metrics")

    assert slot["held_by"] == ["lake"]
    assert slot["wal_limit_bytes"] == GIB
    assert 0 < slot["wal_left_bytes"] <= GIB + 64 * 1024**2
    assert slot["wal_limit_seconds"] == pytest.approx(
        slot["wal_left_bytes"] / slot["wal_growth_bytes_per_second"], rel=0.01
    )
    assert "max_slot_wal_keep_size (1.0 GB) would be reached in about" in words
    assert metrics["penstock_capture_slot_wal_limit_bytes"] == GIB
    assert metrics["penstock_capture_slot_wal_bytes"] > 0
    assert metrics["penstock_capture_slot_wal_growth_bytes_per_second"] > 0
    assert metrics['penstock_capture_slot_wal_holder{holder="lake"}'] == 1
    assert metrics['penstock_capture_slot_wal_holder{holder="capture"}'] == 0


def _with_forecast(slot: dict[str, Any]) -> dict[str, Any] | None:
    return slot if slot["wal_limit_seconds"] and slot["held_by"] == ["lake"] else None


def _with_time(metrics: dict[str, float]) -> dict[str, float] | None:
    return metrics if metrics["penstock_capture_slot_wal_limit_seconds"] < 1e9 else None


def _metrics(port: int) -> dict[str, float]:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
