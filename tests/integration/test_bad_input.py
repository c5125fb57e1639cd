"""What users get wrong, and what goes wrong around them: one clear message, exit code 1, no traceback, nothing lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient

from console.control import send_command
from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from console.waiting import Held
from schemas.control import Resync
from schemas.identifiers import TableName
from schemas.phases import Errored
from tests.conftest import MakePipeline
from tests.support.command import penstock
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline
from tests.support.retention import expire


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


def test_a_topic_that_is_deleted_or_cut_holds_its_table_alone_and_a_copy_heals_it(
    make_pipeline: MakePipeline, kafka: LocalKafka
) -> None:
    pipeline = make_pipeline()
    tables = ("deleted", "cut", "other")
    pipeline.sql(*(f"create table {table} (id int primary key)" for table in tables))
    pipeline.publish()
    pipeline.start()
    pipeline.sql(*(f"insert into {table} values (1)" for table in tables))
    pipeline.assert_equal(*tables)
    pipeline.stop_apply()
    pipeline.sql(*(f"insert into {table} values (2)" for table in tables))
    committed = pipeline.wal_lsn()
    eventually(lambda: pipeline.checkpoint_lsn() >= committed, what="a checkpoint past the inserts")

    topic = pipeline.change_topic("deleted")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})  # kept: what is asked ends with its client
    admin.delete_topics([topic])[topic].result()
    cut = pipeline.change_topic("cut")
    expire(pipeline.config(), cut, pipeline.records(cut))  # the first row may have come by the copy
    pipeline.start_apply()
    pipeline.settle(*tables, held=Held.PASSED_OVER)

    for table, reason in (("deleted", "does not exist any more"), ("cut", "its time is up")):
        phase = held(pipeline, table)
        assert pipeline.change_topic(table) in phase.reason
        assert reason in phase.reason
        assert "penstock resync" in phase.solution
    assert pipeline.lake("select id from public.other order by id") == [(1,), (2,)]
    pipeline.kill_capture()
    pipeline.sql(*(f"insert into {table} values (3)" for table in tables))
    pipeline.start_capture()  # which makes the topic that it misses, and copies the table
    send_command(pipeline.config(), Resync(TableName("public", "cut")))
    eventually(lambda: all(pipeline.known_phase(table) == "Ready" for table in tables), what="new copies")
    pipeline.assert_equal(*tables)


def held(pipeline: Pipeline, table: str) -> Errored:
    report = pipeline.report(table)
    assert report is not None
    assert isinstance(report.phase, Errored)
    return report.phase
