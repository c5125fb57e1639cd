"""The server behind the DSN is another, or not what it was: capture goes on only where no transaction is missing."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from tests.conftest import MakePipeline
from tests.support.eventually import eventually
from tests.support.mirror import Mirror
from tests.support.pipeline import Pipeline

RESYNC = {"PENSTOCK_CAPTURE__ON_LOST_SLOT": "resync"}


@contextmanager
def a_running_pipeline(server: LocalPostgres, kafka: LocalKafka, folder: Path) -> Iterator[tuple[Pipeline, Mirror]]:
    with Pipeline(f"t{secrets.token_hex(4)}", server, kafka, None, folder) as pipeline:
        make_table(pipeline)
        pipeline.start_capture(PENSTOCK_ACKNOWLEDGE__POLICY="kafka")
        yield pipeline, pipeline.assert_captured()


def make_table(pipeline: Pipeline) -> None:
    pipeline.sql(
        "create table t (id bigint primary key, a text)",
        "insert into t select i, 'row ' || i from generate_series(1, 100) i",
    )
    pipeline.publish("t")


def promote(server: LocalPostgres, when: Callable[[], bool] = lambda: True) -> None:
    """Starts a stopped server as a standby, and makes it a primary: on the next timeline, as after a failover."""
    signal = server.directory / "data" / "standby.signal"
    signal.touch()
    server.start()
    eventually(when, what="what comes before the promotion")
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute("select pg_promote()")

        def promoted() -> bool:
            row = admin.execute("select not pg_is_in_recovery()").fetchone()
            return row == (True,)

        eventually(promoted, what="the promotion")


def take_backup(server: LocalPostgres) -> Path:
    server.stop()
    backup = server.directory / "backup"
    shutil.copytree(server.directory / "data", backup)
    server.start()
    return backup


def restore(server: LocalPostgres, backup: Path) -> None:
    """The server, stopped, as it was at the backup."""
    server.stop()
    shutil.rmtree(server.directory / "data")
    shutil.copytree(backup, server.directory / "data")


@pytest.mark.parametrize("version", [14, 17])
def test_a_promoted_standby_that_has_everything_is_followed_to_its_timeline(
    kafka: LocalKafka, tmp_path: Path, version: int
) -> None:
    with LocalPostgres(version) as server, a_running_pipeline(server, kafka, tmp_path) as (pipeline, before):
        pipeline.sql("insert into t select i, 'before' from generate_series(101, 1000) i")
        server.stop()
        promote(server, when=lambda: version >= 16 or "cannot give changes before" in pipeline.capture_log())
        pipeline.reconnect()
        pipeline.sql(
            "insert into t select i, 'after' from generate_series(1001, 2000) i", "delete from t where id < 50"
        )
        after = pipeline.assert_captured()

        assert pipeline.capture is not None
        assert pipeline.capture.process.poll() is None
        assert (after.log_id, after.generation) == (before.log_id, before.generation)
        pipeline.stop_capture()
        pipeline.start_capture()
        pipeline.sql("insert into t values (3000, 'once more')")
        assert pipeline.assert_captured().log_id == before.log_id


def test_a_server_that_went_back_in_time_is_refused_and_resync_copies_anew(kafka: LocalKafka, tmp_path: Path) -> None:
    """Both with the slot, as a backup of the disk has it: without a comparison all would seem to be well."""
    with LocalPostgres() as server, a_running_pipeline(server, kafka, tmp_path) as (pipeline, before):
        pipeline.stop_capture()
        backup = take_backup(server)
        pipeline.reconnect()
        pipeline.sql("insert into t select i, 'forgotten' from generate_series(101, 5000) i")
        pipeline.start_capture()
        seen = pipeline.assert_captured()
        pipeline.stop_capture()

        restore(server, backup)
        server.start()
        pipeline.reconnect()
        assert pipeline.wal_lsn() < seen.lsn
        pipeline.start_capture()
        restored = pipeline.refused()

        restore(server, backup)
        promote(server)
        pipeline.reconnect()
        pipeline.sql("insert into t select i, 'another history' from generate_series(101, 9000) i")
        assert pipeline.wal_lsn() > seen.lsn, "the end of the WAL alone would tell nothing"
        pipeline.start_capture()
        promoted = pipeline.refused()

        pipeline.start_capture(**RESYNC)
        after = pipeline.assert_captured()

    assert "it was restored from a backup" in restored.reason
    assert "The server left timeline 1 at" in promoted.reason
    assert 'on_lost_slot = "resync"' in restored.solution
    assert 'on_lost_slot = "resync"' in promoted.solution
    assert after.log_id != before.log_id
    assert len(after.rows) == 9000


def test_a_recreated_database_is_refused_and_resync_copies_anew(
    postgres: LocalPostgres, kafka: LocalKafka, tmp_path: Path
) -> None:
    with a_running_pipeline(postgres, kafka, tmp_path) as (pipeline, before):
        pipeline.stop_capture()
        pipeline.source.close()
        with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
            admin.execute(f"drop database {pipeline.name}")
            admin.execute(f"create database {pipeline.name}")
        pipeline.reconnect()
        make_table(pipeline)
        pipeline.sql("update t set a = 'of the new one'")
        pipeline.sql(f"select pg_create_logical_replication_slot('penstock_{pipeline.name}', 'pgoutput')")

        pipeline.start_capture()
        refusal = pipeline.refused()
        pipeline.start_capture(**RESYNC)
        after = pipeline.assert_captured()

    assert "The database was made anew" in refusal.reason
    assert after.log_id != before.log_id


def test_another_server_is_refused_and_after_a_resync_the_destination_equals_it(
    make_pipeline: MakePipeline,
) -> None:
    """The other one's LSNs are lower, as after an upgrade by dump and restore."""
    pipeline = make_pipeline()
    make_table(pipeline)
    pipeline.sql("create table gone (id bigint primary key)", f"alter publication {pipeline.name} add table gone")
    pipeline.start()
    pipeline.sql("select pg_switch_wal()", "insert into t values (500, 'far ahead')")
    pipeline.assert_equal("t", "gone")
    pipeline.stop_capture()
    ahead = pipeline.wal_lsn()
    with LocalPostgres(16) as other:
        with psycopg.connect(other.dsn(), autocommit=True) as admin:
            admin.execute(f"create database {pipeline.name}")
        with pipeline.on_server(other):
            make_table(pipeline)
            pipeline.sql("update t set a = 'of the other one'")
            assert pipeline.wal_lsn() < ahead

            pipeline.start_capture()
            refusal = pipeline.refused()
            pipeline.start_capture(**RESYNC)
            eventually(
                lambda: pipeline.lake("select distinct a from public.t") == [("of the other one",)], what="a copy"
            )
            pipeline.assert_equal("t")
            pipeline.stop_apply()
            pipeline.sql("insert into t values (1000, 'while apply was away')")
            pipeline.start_apply()
            pipeline.assert_equal("t")
            pipeline.stop_apply()
            pipeline.stop_capture()

    assert "This is another server" in refusal.reason
    assert "source.dsn" in refusal.solution


def test_a_standby_that_is_promoted_under_a_running_capture_is_followed_and_a_restart_goes_on(
    kafka: LocalKafka, tmp_path: Path
) -> None:
    """The connection outlives the promotion (16 and later): the timeline that is remembered must move with it."""
    with LocalPostgres(17) as server, a_running_pipeline(server, kafka, tmp_path) as (pipeline, before):
        server.stop()
        (server.directory / "data" / "standby.signal").touch()
        server.start()
        eventually(lambda: walsenders(server) == 1, what="the stream from the standby")
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            admin.execute("select pg_promote()")
        pipeline.reconnect()
        pipeline.sql("insert into t select i, 'after' from generate_series(1001, 2000) i")
        pipeline.assert_captured()

        pipeline.stop_capture()
        pipeline.start_capture()

        pipeline.sql("insert into t values (3000, 'once more')")
        assert pipeline.assert_captured().log_id == before.log_id


def walsenders(server: LocalPostgres) -> int:
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        row = admin.execute("select count(*) from pg_stat_replication").fetchone()
    return row[0] if row else 0
