"""`python -m tests.upgrade.make`: a pipeline of this release lives, is left half-done, and is put into an archive.

A copy is under way in capture, apply is behind, a table is paused, the log has two epochs, two generations, a new shape
and commands. Run it once, with the release; git has the archive from then on."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import tempfile
from contextlib import closing
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg

from apply_spark.destinations.clickhouse_state import Pending, State, new_mirror
from apply_spark.destinations.duckdb import DuckDbDestination
from apply_spark.destinations.plans import Plan
from apply_spark.progress import Progress
from console.control import send_command
from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from console.waiting import Held
from schemas.checkpoint import CopyFinished
from schemas.control import Command, Pause, Resume, Resync, Rollback, Skip, SwitchPolicy
from schemas.identifiers import PipelineName, TableName
from schemas.lsn import Lsn, Position
from schemas.topics import Topics
from stores.kafka_log import KafkaLog
from stores.postgres import RowsInPostgres
from stores.relations import RELATIONS, Put
from stores.schema_topic import SchemaTopic
from stores.sqlite import RowsInSqlite
from tests.support.captured import Captured
from tests.support.destinations import add_duckdb, settle
from tests.support.eventually import eventually
from tests.support.pipeline import LAKE as LAKE_NAME
from tests.support.pipeline import Pipeline, read_lake
from tests.upgrade.release import ABOUT, FOLDER, LAKE, PROGRESS, STATE, STORE, KeyAndValue, write_release

TABLES = ("orders", "documents", "bag", "waiting")
PROOF = "proof"
SLOW_COPY = {
    "PENSTOCK_CAPTURE__COPY_MAX_RATE": "40kB",
    "PENSTOCK_CAPTURE__COPY_RANGE_SIZE": "128KiB",
    "PENSTOCK_CAPTURE__COPY_WORKERS": "1",
}


def main() -> None:
    release = version("penstock")
    path = FOLDER / f"{release}.zip"
    if path.exists():
        sys.exit(f"{path} is there: a release is kept as it was.")
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
    name = f"upgrade_{release.replace('.', '_')}"
    with (
        LocalPostgres() as postgres,
        LocalKafka() as kafka,
        tempfile.TemporaryDirectory() as folder,
        Pipeline(name, postgres, kafka, None, Path(folder)) as pipeline,
    ):
        half_done, rows = _lived(pipeline)
        about = {"version": release, "pipeline": name, "lsn": str(pipeline.checkpoint_lsn()), "rows": rows}
        state = Path(pipeline.config().capture_config().state_path)
        files = {
            ABOUT: json.dumps(about).encode(),
            STATE: _closed(state),
            LAKE: half_done,
            STORE: json.dumps(_store(postgres, PipelineName(name), state)).encode(),
            PROGRESS: json.dumps(_progress(pipeline, half_done)).encode(),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        write_release(path, files, _topics(pipeline))
    print(f"{path}: {path.stat().st_size:,} bytes")  # noqa: T201 -- the answer


def _lived(pipeline: Pipeline) -> tuple[bytes, dict[str, list[list[str | None]]]]:
    """The destination as it was half-done, and what every table holds in the end."""
    log = Captured(pipeline)
    _make(pipeline)
    pipeline.start_capture()
    pipeline.start_apply_process()
    pipeline.settle(*TABLES)
    _tell(pipeline, Pause(TableName("public", "waiting"), LAKE_NAME))
    eventually(lambda: (report := pipeline.report("waiting")) is not None and report.paused, what="the pause")
    pipeline.sql("update waiting set n = n + 1", "update orders set note = 'seen' where id < 10")
    pipeline.settle("orders", "documents", "bag", held=Held.PASSED_OVER)
    _stop_apply(pipeline)
    half_done = pipeline.lake_path.read_bytes()

    _change(pipeline)
    pipeline.kill_capture()
    pipeline.sql("update orders set extra = 9 where id > 40", "insert into bag values ('after the kill', 1)")
    pipeline.start_capture()
    _tell(pipeline, Resync(TableName("public", "documents")))
    eventually(lambda: _copies(log, "documents") == 2, what="the new copy")
    _tell(pipeline, Rollback(TableName("public", "bag")))
    _tell(pipeline, Skip(TableName("public", "bag"), Position(Lsn(1), 0)))
    _tell(pipeline, SwitchPolicy(None))
    _tell(pipeline, Resume(TableName("public", "waiting"), LAKE_NAME))

    proof = add_duckdb(pipeline, PROOF)
    pipeline.start_apply_process(PROOF)
    settle(pipeline, PROOF, TABLES)
    _stop_apply(pipeline)
    rows = {table: contents(proof, table) for table in TABLES}
    _leave_a_copy_under_way(pipeline, log)
    return half_done, rows


def _copies(log: Captured, table: str) -> int:
    """That came to their end."""
    return sum(isinstance(marker, CopyFinished) for marker in log.markers(table))


def contents(lake: Path, table: str) -> list[list[str | None]]:
    """A table of a DuckDB file as text."""
    found = read_lake(lake, f"select cast(columns(*) as varchar) from public.{table} order by all")
    return [list(row) for row in found]


def _make(pipeline: Pipeline) -> None:
    pipeline.sql(
        "create table orders (id bigint primary key, amount numeric(10, 2), note text, tags text[], at timestamp)",
        "insert into orders select i, i * 1.25, 'order ' || i, array['a', null, i::text], "
        "  timestamp '2026-01-01' + i * interval '1 hour' from generate_series(1, 60) i",
        "create table documents (id int primary key, title text, body text)",
        "alter table documents alter column body set storage external",
        "insert into documents select i, 'title ' || i, repeat(md5(i::text), 100) from generate_series(1, 3) i",
        "create table bag (what text, n int)",
        "alter table bag replica identity full",
        "insert into bag select 'same', i % 2 from generate_series(1, 6) i",
        "create table waiting (id int primary key, n int)",
        "insert into waiting select i, 0 from generate_series(1, 20) i",
    )
    pipeline.publish(*TABLES)


def _change(pipeline: Pipeline) -> None:
    """Every kind of change; the bodies of documents are not sent again."""
    pipeline.sql(
        "update documents set title = title || '!'",
        "update documents set id = id + 100 where id = 2",
        "alter table orders add column extra int default 7",
        "delete from orders where id % 10 = 0",
        "update orders set id = id + 1000 where id < 5",
        "update bag set n = 5 where ctid = (select min(ctid) from bag)",
        "delete from bag where ctid = (select max(ctid) from bag)",
        "truncate waiting",
        "insert into waiting select i, 1 from generate_series(5, 15) i",
    )


def _leave_a_copy_under_way(pipeline: Pipeline, log: Captured) -> None:
    """One of its ranges, at least, is finished, and one is not."""
    pipeline.stop_capture()
    pipeline.start_capture(**SLOW_COPY)
    pipeline.sql(
        "create table archive (id int primary key, note varchar(200))",
        "insert into archive select i, repeat('archive ', 20) from generate_series(1, 3000) i",
        f'alter publication "{pipeline.name}" add table archive',
    )
    eventually(lambda: log.generations("archive"), what="a copy")
    eventually(lambda: pipeline.copied_records("archive") > 800, what="a range")
    pipeline.stop_capture()


def _tell(pipeline: Pipeline, command: Command) -> None:
    send_command(pipeline.config(), command)


def _stop_apply(pipeline: Pipeline) -> None:
    assert pipeline.apply is not None
    pipeline.apply.process.terminate()
    assert pipeline.apply.process.wait(60) == 0


def _closed(state: Path) -> bytes:
    """The one file: its write-ahead log is taken in."""
    with closing(sqlite3.connect(state)) as file:
        file.execute("pragma journal_mode = delete")
    return state.read_bytes()


def _store(postgres: LocalPostgres, pipeline: PipelineName, state: Path) -> dict[str, Any]:
    """The same memory in a store in Postgres: the scripts that made it, and the rows of its tables."""
    memory, database = RowsInSqlite(state), f"{pipeline}_store"
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute(f'create database "{database}"')
    rows = RowsInPostgres(postgres.dsn(database), pipeline)
    with closing(memory), closing(rows), memory.writing(), rows.writing():
        found = [Put(relation, *relation.read(row)) for relation in RELATIONS for row in memory.rows(relation)]
        rows.save(found, revision=1)
    with psycopg.connect(postgres.dsn(database)) as session:
        scripts = session.execute("select number, name from penstock.store_migrations order by number").fetchall()
        tables = session.execute(
            "select relname from pg_class where relnamespace = 'penstock'::regnamespace and relkind = 'r'"
            "  and relname <> 'store_migrations' order by relname <> 'store_pipelines', relname"
        ).fetchall()
        return {
            "migrations": [[number, name, _script(name)] for number, name in scripts],
            "tables": {name: _copied(session, name) for (name,) in tables},
        }


def _script(name: str) -> str:
    return resources.files("stores").joinpath("migrations", f"{name}.sql").read_text()


def _copied(session: psycopg.Connection, table: str) -> str:
    with session.cursor().copy(f"copy penstock.{table} to stdout") as rows:
        return b"".join(bytes(row) for row in rows).decode()


def _progress(pipeline: Pipeline, half_done: bytes) -> dict[str, Any]:
    """The progress of the half-done destination as the others keep it."""
    copy = pipeline.folder / "progress.duckdb"
    copy.write_bytes(half_done)
    destination = DuckDbDestination(LAKE_NAME, {"path": copy})
    progress = destination.startup()
    destination.shutdown()
    assert progress is not None
    plan = Plan(1, 2, progress, Progress.fresh(progress.log_id), tuple(progress.tables))
    with KafkaLog(pipeline.config().kafka) as log:
        schemas = SchemaTopic(pipeline.config().kafka, log, Topics(pipeline.config().pipeline).schemas)
        shapes = [schemas.get(table.schema_id).table for table in progress.tables.values()]
    mirrors = {shape.name: new_mirror(shape, "storage") for shape in shapes if shape is not None}
    pending = (Pending(next(iter(progress.tables)), "staged"),)
    state = State(progress, mirrors, pending, tuple(progress.tables.values()))
    return {"stored": progress.stored(), "plan": plan.to_json(), "clickhouse": state.to_json()}


def _topics(pipeline: Pipeline) -> dict[str, list[KeyAndValue]]:
    with KafkaLog(pipeline.config().kafka) as log:
        mine = sorted(topic for topic in log.topics() if topic.startswith(f"{pipeline.name}."))
        return {topic: [(record.key, record.value) for record in log.read_all(topic)] for topic in mine}


if __name__ == "__main__":
    main()
