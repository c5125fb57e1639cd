"""Real standbys: capture reads from one, or goes on at one that was promoted; or it says why it cannot."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from capture.config import CaptureConfig, SourceConfig
from capture.findings import Severity
from capture.preflight import source_findings
from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from schemas.connections import KafkaConfig
from schemas.identifiers import PipelineName
from tests.support.eventually import eventually
from tests.support.meanwhile import meanwhile
from tests.support.pipeline import Pipeline
from tests.support.standby import PHYSICAL_SLOT, a_standby, either, has_replayed, promote

AT_KAFKA = {"PENSTOCK_ACKNOWLEDGE__POLICY": "kafka"}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def a_pipeline(stack: ExitStack, server: LocalPostgres, kafka: LocalKafka, folder: Path) -> Pipeline:
    name = f"t{secrets.token_hex(4)}"
    (folder / name).mkdir()
    pipeline = stack.enter_context(Pipeline(name, server, kafka, None, folder / name))
    pipeline.sql(
        "create table t (id bigint primary key, a text)",
        "insert into t select i, 'row ' || i from generate_series(1, 1000) i",
    )
    pipeline.publish("t")
    return pipeline


def problems(dsn: str, pipeline: Pipeline, **source: object) -> dict[str, str]:
    """What doctor says about this server: the reasons of problems, by subject."""
    config = CaptureConfig(
        pipeline=PipelineName(pipeline.name),
        source=SourceConfig.model_validate({"dsn": dsn, "publication": pipeline.name, **source}),
        kafka=KafkaConfig(bootstrap_servers="unused:1"),
        state_path="unused.sqlite",
    )
    found = [finding for finding in source_findings(config) if finding.severity is Severity.PROBLEM]
    return {finding.subject: finding.reason for finding in found}


def test_copy_and_stream_from_a_standby_are_exact(kafka: LocalKafka, tmp_path: Path, stack: ExitStack) -> None:
    primary = stack.enter_context(LocalPostgres(17))
    standby = stack.enter_context(a_standby(primary))
    pipeline = a_pipeline(stack, primary, kafka, tmp_path)
    from_standby = {"PENSTOCK_SOURCE__DSN": standby.dsn(pipeline.name), **AT_KAFKA}
    eventually(lambda: has_replayed(primary, standby), what="the standby to have the database")

    with psycopg.connect(primary.dsn(pipeline.name)) as writer:
        writer.execute("insert into t values (0, 'open while the slot is made')")
        pipeline.start_capture(**from_standby)
        eventually(lambda: waits_for_the_primary(pipeline), what="a line that says whom the slot waits for")

    def write(step: int) -> None:
        pipeline.sql(
            f"insert into t values (1000 + {step}, 'meanwhile')",
            f"delete from t where id = {step}",
            "select pg_log_standby_snapshot()",
        )

    with meanwhile(write, pause=0.05):
        eventually(lambda: pipeline.copied_records("t") > 0, what="a copy")
    before = pipeline.assert_captured()
    pipeline.stop_capture()
    pipeline.sql("insert into t values (5000, 'while capture was away')", "update t set a = 'new' where id > 900")
    pipeline.start_capture(**from_standby)
    after = pipeline.assert_captured()

    assert (after.log_id, after.generation) == (before.log_id, before.generation)
    assert "no publication can be made" in problems(standby.dsn(pipeline.name), pipeline, tables=["*"])["standby"]
    assert "only slots of a primary" in problems(standby.dsn(pipeline.name), pipeline, failover="slot")["standby"]


def waits_for_the_primary(pipeline: Pipeline) -> bool:
    return "slot waits for the primary of this standby" in (pipeline.folder / "capture0.log").read_text()


def test_a_standby_of_a_version_that_cannot_decode_there_is_refused(
    kafka: LocalKafka, tmp_path: Path, stack: ExitStack
) -> None:
    primary = stack.enter_context(LocalPostgres(15))
    standby = stack.enter_context(a_standby(primary))
    pipeline = a_pipeline(stack, primary, kafka, tmp_path)
    eventually(lambda: has_replayed(primary, standby), what="the standby to have the database")

    pipeline.start_capture(PENSTOCK_SOURCE__DSN=standby.dsn(pipeline.name))
    refusal = pipeline.refused()

    assert "logical decoding on a standby needs Postgres 16; this is 15" in refusal.reason
    assert "Name the primary in `source.dsn`" in refusal.solution


def test_capture_goes_on_at_a_promoted_standby_that_kept_its_slot_in_step_and_is_refused_without_the_slot(
    kafka: LocalKafka, tmp_path: Path, stack: ExitStack
) -> None:
    primary = stack.enter_context(LocalPostgres(17, settings={"synchronized_standby_slots": PHYSICAL_SLOT}))
    standby = stack.enter_context(a_standby(primary))
    kept, lost = (a_pipeline(stack, primary, kafka, tmp_path) for _ in range(2))
    kept.start_capture(**AT_KAFKA)  # without failover at first: an existing slot is changed
    kept.assert_captured()
    kept.stop_capture()
    for pipeline, failover in ((kept, "slot"), (lost, "none")):
        dsn = either(primary, standby, pipeline.name)
        pipeline.start_capture(PENSTOCK_SOURCE__DSN=dsn, PENSTOCK_SOURCE__FAILOVER=failover, **AT_KAFKA)
    before = kept.assert_captured()
    lost.assert_captured()

    with psycopg.connect(standby.dsn(), autocommit=True) as looking:
        step = iter(range(2000, 100_000))

        def in_step() -> bool:
            kept.sql(
                f"insert into t values ({next(step)}, 'so that the slot moves')", "select pg_log_standby_snapshot()"
            )
            found = looking.execute(
                "select synced and not temporary from pg_replication_slots where slot_name = %s",
                [f"penstock_{kept.name}"],
            ).fetchone()
            return found == (True,)

        eventually(in_step, what="the standby to have the slot")
    before_promotion = problems(standby.dsn(kept.name), kept)
    kept.sql("insert into t select i, 'just before' from generate_series(200001, 203000) i")
    kept.assert_captured()  # by then the standby has it, for capture does not go ahead of it
    eventually(lambda: has_replayed(primary, standby), what="the standby to have the rest")
    primary.kill()
    promote(standby)
    with kept.on_server(standby):
        kept.sql("insert into t select i, 'after' from generate_series(300001, 301000) i", "delete from t where id < 9")
        after = kept.assert_captured()
        refusal = lost.refused()
        primary.start()  # where what the tests made is removed

    assert kept.capture is not None
    assert kept.capture.process.poll() is None, "it was not even restarted"
    assert (after.log_id, after.generation) == (before.log_id, before.generation)
    assert "kept in step here" in before_promotion["slot"]
    assert f"Slot penstock_{lost.name} is gone" in refusal.reason
    assert "source.failover" in refusal.solution
