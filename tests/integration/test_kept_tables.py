"""Three destinations of one pipeline, each in a mode of its own, from the source to the end."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from capture.setup_source import Setup, set_up
from console.waiting import Held
from schemas.phases import Errored
from tests.conftest import MakePipeline
from tests.support.destinations import RunningApply, add_duckdb, contents, settle
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline, read_lake

CHANGES = (
    "update t set note = 'a2' where id = 1",
    "update t set id = 20 where id = 2",
    "delete from t where id = 3",
    "insert into t values (4, 'd', 'd')",
    "delete from t where id = 4",
    "insert into t values (3, 'again', 'c')",
    "alter table t add column late int default 9",
)
END = ("truncate t", "insert into t values (1, 'new', 'n', 1)")
"""Later: a new shape is followed only while the table has the file that it was copied with."""
LONG = 5000


def assert_every_version(pipeline: Pipeline) -> None:
    versions = pipeline.lake(
        "select id, note, length(big), late, _valid_to is null from public.t order by id, _valid_from_lsn"
    )
    assert versions == [
        (1, "a", LONG, 9, False),
        (1, "a2", LONG, 9, False),
        (1, "new", 1, 1, True),
        (2, "b", LONG, 9, False),
        (3, "c", 1, 9, False),
        (3, "again", 1, 9, False),
        (4, "d", 1, 9, False),
        (20, "b", LONG, 9, False),
    ]
    gaps = pipeline.lake(
        "select * from public.t a join public.t b on a.id = b.id and a.note = 'a' and b.note = 'a2'"
        " where (a._valid_to, a._valid_to_lsn) is distinct from (b._valid_from, b._valid_from_lsn)"
    )
    assert gaps == []


def assert_marked(soft: Path) -> None:
    assert read_lake(soft, "select id, note, length(big), late, _is_deleted from public.t order by id") == [
        (1, "new", 1, 1, False),
        (2, "b", LONG, 9, True),
        (3, "again", 1, 9, True),
        (4, "d", 1, 9, True),
        (20, "b", LONG, 9, True),
    ]


def assert_logged(log: Path) -> None:
    told = read_lake(
        log, "select _op, id, note, _unchanged from public.t where _op <> 'r' order by _lsn, _ordinal, _commit_ts"
    )
    assert told == [
        ("u", 1, "a2", ["big"]),
        ("d", 2, None, []),
        ("c", 20, "b", ["big"]),
        ("d", 3, None, []),
        ("c", 4, "d", []),
        ("d", 4, None, []),
        ("c", 3, "again", []),
        ("t", None, None, []),
        ("c", 1, "new", []),
    ]
    assert read_lake(log, "select _op, a from public.bag") == [("r", "x")]
    assert read_lake(log, "select count(*) from public.t where _op = 'r' and _commit_ts is null") == [(3,)]


def test_each_mode_keeps_what_it_says_and_another_mode_fills_the_table_anew(
    make_pipeline: MakePipeline, spark: SparkSession
) -> None:
    pipeline = make_pipeline('mode = "history"')
    set_up(pipeline.source, Setup.INSTALL)
    pipeline.sql(
        "create table t (id int primary key, note text, big text)",
        "alter table t alter column big set storage external",
        "create table bag (a text)",
        "alter table bag replica identity full",
        f"insert into t values (1, 'a', repeat('x', {LONG})), (2, 'b', repeat('y', {LONG})), (3, 'c', 'c')",
        "insert into bag values ('x')",
    )
    pipeline.publish()
    soft = add_duckdb(pipeline, "soft_delete", 'mode = "soft_delete"', 'tables = ["public.t"]')
    log = add_duckdb(pipeline, "log", 'mode = "log"')
    pipeline.start()
    with RunningApply(pipeline, "soft_delete", spark) as soft_apply, RunningApply(pipeline, "log", spark) as log_apply:
        for statements in ((), CHANGES, END):
            pipeline.sql(*statements)
            pipeline.settle("t", held=Held.PASSED_OVER)
            settle(pipeline, "soft_delete", ["t"], soft_apply)
            settle(pipeline, "log", ["t", "bag"], log_apply)

    assert_every_version(pipeline)
    assert_marked(soft)
    assert_logged(log)
    report = eventually(lambda: pipeline.report("bag"), what="the table without a key to be told of")
    assert isinstance(report.phase, Errored)
    assert "has no key" in report.phase.reason
    assert 'mode = "log"' in report.phase.solution

    pipeline.file.write_text(pipeline.file.read_text().replace('mode = "log"', 'mode = "mirror"'))
    with RunningApply(pipeline, "log", spark):  # what it last told is of before: the rows are waited for
        eventually(lambda: contents(log, "t") == [(1, "new", "n", 1)], seconds=60, what="a mirror of t")
        eventually(lambda: contents(log, "bag") == [("x",)], seconds=60, what="a mirror of bag")
