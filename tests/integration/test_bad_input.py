"""What users get wrong, and what goes wrong around them: one clear message, exit code 1, no traceback, nothing lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient

from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from tests.conftest import MakePipeline
from tests.support.command import penstock
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline


def assert_refused(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    """One error with reason and solution, exit code 1, no traceback."""
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("error:") == 1, done.stderr
    assert "solution:" in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    for part in parts:
        assert part in done.stderr, done.stderr


def changed(pipeline: Pipeline, old: str, new: str) -> str:
    """The pipeline's configuration with one mistake; the path of the file."""
    text = pipeline.file.read_text()
    assert old in text
    pipeline.file.write_text(text.replace(old, new))
    return str(pipeline.file)


@contextmanager
def another_program_with(path: Path) -> Iterator[None]:
    """Somebody who has the DuckDB file open for writing."""
    script = f"import duckdb, sys; held = duckdb.connect({str(path)!r}); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdin is not None
        assert program.stdout.readline() == b"open\n"
        try:
            yield
        finally:
            program.stdin.close()


def test_a_wrong_dsn_is_refused_without_its_password(make_pipeline: MakePipeline, postgres: LocalPostgres) -> None:
    pipeline = make_pipeline()
    file = changed(pipeline, postgres.dsn(pipeline.name), "postgresql://someone:secret@127.0.0.1:1/nowhere")

    done = penstock("capture", "-c", file)

    assert_refused(done, "127.0.0.1")
    assert "secret" not in done.stderr + done.stdout


def test_a_missing_publication_is_refused_with_the_sql_that_makes_it(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline()

    done = penstock("capture", "-c", str(pipeline.file))

    assert_refused(done, pipeline.name, "create publication")


def test_wal_level_replica_is_refused_with_the_setting_to_change(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline()
    with LocalPostgres(settings={"wal_level": "replica"}) as server:
        file = changed(pipeline, "dsn = ", f'dsn = "{server.dsn()}" #')

        done = penstock("capture", "-c", file)

    assert_refused(done, "wal_level")


def test_an_unknown_key_is_refused_with_a_suggestion(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline()
    file = changed(pipeline, "publication =", "publicaton =")

    done = penstock("capture", "-c", file)

    assert_refused(done, "publicaton", "did you mean publication?")


def test_an_unreachable_broker_is_refused(make_pipeline: MakePipeline, kafka: LocalKafka) -> None:
    pipeline = make_pipeline()
    pipeline.publish()
    file = changed(pipeline, f'"{kafka.bootstrap_servers}"', '"127.0.0.1:1"\n            patience = "2s"')

    assert_refused(penstock("capture", "-c", file), "127.0.0.1:1")
    assert_refused(penstock("apply", "-c", file), "127.0.0.1:1")


def test_a_duckdb_file_that_somebody_else_holds_is_refused(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline()
    file = changed(pipeline, 'type = "duckdb"', 'type = "duckdb"\n            lock_timeout = "1s"')

    with another_program_with(pipeline.lake_path):
        done = penstock("apply", "-c", file)

    assert_refused(done, str(pipeline.lake_path))


def test_an_unknown_option_of_a_destination_is_refused_with_a_suggestion(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline()
    file = changed(pipeline, 'type = "duckdb"', 'type = "duckdb"\n            lock_timout = "1s"')

    assert_refused(penstock("apply", "-c", file), "lock_timout", "did you mean lock_timeout?")


def test_a_topic_deleted_under_apply_stops_it_and_a_restart_heals_the_table(
    make_pipeline: MakePipeline, kafka: LocalKafka
) -> None:
    pipeline = make_pipeline()
    pipeline.sql("create table a (id int primary key)", "create table b (id int primary key)")
    pipeline.publish()
    pipeline.start_capture()
    pipeline.start_apply_process()
    pipeline.sql("insert into a values (1)", "insert into b values (1)")
    pipeline.assert_equal("a", "b")
    assert pipeline.apply is not None
    generation = pipeline.generation("a")
    pipeline.pause(pipeline.apply)
    pipeline.sql("insert into a values (2)")
    committed = pipeline.wal_lsn()
    eventually(lambda: pipeline.checkpoint_lsn() >= committed, what="a checkpoint past the insert")

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_topics([pipeline.change_topic("a")])[pipeline.change_topic("a")].result()
    pipeline.resume(pipeline.apply)

    assert pipeline.apply.process.wait(60) == 1
    failure = pipeline.apply.failure()
    assert pipeline.change_topic("a") in failure.reason
    assert "penstock resync" in failure.solution
    pipeline.kill_capture()
    pipeline.sql("insert into a values (3)", "insert into b values (3)")
    pipeline.start_capture()
    eventually(lambda: pipeline.has_topic(pipeline.change_topic("a")), what="capture to make the topic anew")
    pipeline.start_apply()
    eventually(lambda: pipeline.generation("a") > generation, what="a new copy of the table")
    pipeline.assert_equal("a", "b")
