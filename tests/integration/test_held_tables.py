"""A table that cannot go on at its destination: the others go on, it says why, and goes on exactly once it can."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from console.local_stack.postgres import LocalPostgres
from schemas.feedback import TableReport
from schemas.phases import Errored
from tests.conftest import MakePipeline
from tests.contract.destination_places import PostgresPlace
from tests.integration.test_bad_input import assert_refused, penstock
from tests.integration.test_into_postgres import contents
from tests.integration.test_lag import BOUND_SECONDS, Lag
from tests.support.eventually import eventually
from tests.support.meanwhile import meanwhile
from tests.support.pipeline import Pipeline

RETRIES = '[apply]\nretry_first = "300ms"\nretry_most = "1s"'


@pytest.fixture
def mirror(postgres: LocalPostgres) -> PostgresPlace:
    return PostgresPlace(postgres)


@pytest.fixture
def pipeline(make_pipeline: MakePipeline, mirror: PostgresPlace) -> Pipeline:
    """Two tables in a Postgres that is patient with locks for a moment only."""
    made = make_pipeline(toml=RETRIES)
    duckdb = f'type = "duckdb"\n            path = "{made.lake_path}"'
    text = made.file.read_text()
    assert duckdb in text
    made.file.write_text(
        text.replace(duckdb, f'type = "postgres"\nlock_timeout = "200ms"\n            dsn = "{mirror.dsn}"')
    )
    made.sql(
        "create table small (id int primary key)",
        "create table bad (id int primary key, n int)",
        "insert into bad select i, i from generate_series(1, 100) i",
    )
    made.publish()
    made.start()
    made.settle("small", "bad")
    return made


def assert_equal(pipeline: Pipeline, mirror: PostgresPlace) -> None:
    pipeline.settle("small", "bad")
    with psycopg.connect(mirror.dsn) as there:
        for table in ("small", "bad"):
            assert contents(there, table) == contents(pipeline.source, table), table


def errored(pipeline: Pipeline, attempt: int = 1) -> Errored | None:
    """How the table is held, after so many failures at least."""
    report: TableReport | None = pipeline.report("bad")
    if report is None or not isinstance(report.phase, Errored) or report.phase.attempt < attempt:
        return None
    return report.phase


def status(pipeline: Pipeline) -> dict[str, Any]:
    report = json.loads(penstock("status", "-c", str(pipeline.file), "--json").stdout)
    table: dict[str, Any] = report["destinations"]["lake"]["tables"]["public.bad"]
    return table


def stored(mirror: PostgresPlace) -> dict[str, Any]:
    """What the destination has stored of the table."""
    with psycopg.connect(mirror.dsn) as there:
        row = there.execute("select progress from penstock.tables where table_name = 'bad'").fetchone()
    assert row is not None
    found: dict[str, Any] = row[0]
    return found


def test_others_stay_close_to_the_source_while_a_table_is_held_and_it_catches_up_exactly_after_a_rollback(
    pipeline: Pipeline, mirror: PostgresPlace
) -> None:
    lag = Lag(pipeline)
    with (
        psycopg.connect(mirror.dsn, autocommit=True) as there,
        meanwhile(lag.commit, pause=0.05),
        meanwhile(lambda _: lag.look(), pause=0.01),
    ):
        eventually(lambda: lag.seen > 0, what="the first commits")
        lag.worst = 0.0
        there.execute("alter table bad rename n to m")

        pipeline.sql("update bad set n = n + 1", "delete from bad where id % 7 = 0")
        eventually(lambda: errored(pipeline), what="the table to be held")
        told = status(pipeline)
        pipeline.sql("insert into bad select i, 0 from generate_series(200, 300) i", "update bad set id = id + 1000")
        released = pipeline.wal_lsn()
        eventually(lambda: pipeline.confirmed_lsn() >= released, what="WAL to be released all the same")
        seen = lag.seen
        eventually(lambda: lag.seen > seen + 20, what="others to go on")
        assert errored(pipeline), "nobody helped yet"
        there.execute("alter table bad rename m to n")
        done = penstock("rollback", "bad", "-c", str(pipeline.file))
        eventually(lambda: pipeline.known_phase("bad") == "Ready", what="the table to be back")
    lag.close()

    print(f"{lag.seen} commits meanwhile, the slowest {lag.worst:.2f} s")  # noqa: T201
    assert done.returncode == 0, done.stderr
    assert (told["phase"], told["attempt"], told["next_try"]) == ("Errored", 1, None)
    assert "refuses to write to its mirror (UndefinedColumn)" in told["reason"]
    assert "penstock rollback" in told["solution"]
    assert lag.worst < BOUND_SECONDS
    assert_equal(pipeline, mirror)
    assert_refused(penstock("rollback", "bad", "-c", str(pipeline.file)), "public.bad is not held by an error")
    assert_refused(penstock("pause", "bed", "-c", str(pipeline.file)), "did you mean public.bad?")


def test_a_table_that_time_may_heal_is_tried_again_over_a_restart_and_is_ready_without_help(
    pipeline: Pipeline, mirror: PostgresPlace
) -> None:
    with psycopg.connect(mirror.dsn) as other:
        other.execute("lock table bad")
        pipeline.sql("update bad set n = -n", "insert into small values (1)")
        held = eventually(lambda: errored(pipeline, attempt=2), what="a second attempt")
        pipeline.stop_apply()
        attempts = stored(mirror)["phase"]["attempt"]
        pipeline.stop_capture()  # tries must not need new checkpoints
        pipeline.start_apply()
        again = eventually(lambda: errored(pipeline, attempt=attempts + 1), what="the attempt after the last one")
        eventually(lambda: errored(pipeline, attempt=attempts + 4), what="attempts after the last checkpoint")

    eventually(lambda: pipeline.known_phase("bad") == "Ready", what="the table to be ready by itself")

    assert "LockNotAvailable" in held.reason
    assert held.next_try is not None
    assert again.attempt <= attempts + 2, "the attempts before the restart are not forgotten, and none is made up"
    assert stored(mirror)["attempts"] == 0
    pipeline.start_capture()
    assert_equal(pipeline, mirror)
