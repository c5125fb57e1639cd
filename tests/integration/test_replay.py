"""A destination filled from the topics alone, after Postgres was stopped: whole, or exactly as of a moment.

One history serves all tests: copies, all kinds of changes, a new column, a second copy, a table that left, one that
came late, a killed capture, and transactions that one checkpoint covers.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from apply_spark.errors import DestinationNotNew, ReplayImpossible, ReplayInterrupted
from apply_spark.progress import Progress
from apply_spark.reach import log_end, log_of
from apply_spark.replay import Missing, run_replay
from apply_spark.replay_target import target
from console.control import send_command
from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from console.local_stack.spark import spark_runtime
from schemas.control import Resync
from schemas.identifiers import DestinationName, TableName
from schemas.lsn import Lsn
from schemas.phases import Ready
from schemas.topics import Topics
from stores.kafka_log import KafkaLog
from tests.support.destinations import add_duckdb, contents
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline

TABLES = ("keyed", "bag", "late")
BAG = TableName("public", "bag")
REPLAYED = 'filled_by = "replay"'


@dataclass(frozen=True)
class Moment:
    """What a client of the source saw, and when."""

    lsn: Lsn
    time: datetime
    rows: dict[str, list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Past:
    """A pipeline of which only the topics are left."""

    pipeline: Pipeline
    moments: dict[str, Moment]


def remembered(pipeline: Pipeline, *tables: str) -> Moment:
    rows = {table: sorted(pipeline.source.execute(f"select * from {table}").fetchall(), key=repr) for table in tables}
    found = pipeline.source.execute("select clock_timestamp()").fetchone()
    assert found is not None
    return Moment(pipeline.wal_lsn(), found[0], rows)


@pytest.fixture(scope="module")
def past(kafka: LocalKafka, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    with LocalPostgres() as server:
        name = f"t{secrets.token_hex(4)}"
        with Pipeline(name, server, kafka, spark, tmp_path_factory.mktemp("past")) as pipeline:
            moments = lived(pipeline)
            server.stop()
            yield Past(pipeline, moments)
            server.start()
            pipeline.reconnect()


def lived(pipeline: Pipeline) -> dict[str, Moment]:
    moments = {}
    pipeline.sql(
        "create table keyed (id int primary key, n int, big text)",
        "alter table keyed alter column big set storage external",
        "create table bag (id int, note text)",
        "alter table bag replica identity full",
        "create table gone (id int primary key)",
        "insert into keyed select i, 0, repeat('long ', 1000) from generate_series(1, 500) i",
        "insert into bag select 1, 'same' from generate_series(1, 10)",
    )
    pipeline.publish("keyed", "bag", "gone")
    pipeline.start()
    pipeline.settle("keyed", "bag", "gone")
    pipeline.sql("update keyed set n = n + 1 where id % 2 = 0", "insert into bag values (2, 'more')")
    moments["changed"] = remembered(pipeline, "keyed", "bag")
    pipeline.sql(
        "update keyed set id = id + 1000 where id % 7 = 0",
        "delete from keyed where id % 11 = 0",
        "truncate bag",
        "insert into bag values (3, 'after the truncate')",
    )
    pipeline.settle("keyed", "bag")
    pipeline.kill_capture()

    # What one checkpoint of the next capture covers, with moments in its middle.
    pipeline.sql("update keyed set n = 100 where id <= 5", "insert into bag values (4, null)")
    moments["inside"] = remembered(pipeline, "keyed", "bag")
    pipeline.sql("delete from keyed where id <= 3", "truncate bag")
    moments["truncated"] = remembered(pipeline, "keyed", "bag")
    pipeline.sql("insert into bag values (5, 'x')", "update keyed set id = -id where id < 10")
    pipeline.start_capture(PENSTOCK_CAPTURE__CHECKPOINT_INTERVAL="2s")
    pipeline.settle("keyed", "bag")

    pipeline.sql("alter table keyed add column c text default 'new'", "update keyed set c = 'set' where id % 3 = 0")
    pipeline.settle("keyed", "bag")
    moments["altered"] = remembered(pipeline, "keyed", "bag")
    first = pipeline.generation("bag")
    send_command(pipeline.config(), Resync(BAG))
    eventually(lambda: pipeline.generation("bag") > first, what="the second copy")
    pipeline.sql(
        "create table late (id int primary key)",
        "insert into late select generate_series(1, 50)",
        f'alter publication "{pipeline.name}" drop table gone',
        f'alter publication "{pipeline.name}" add table late',
    )
    pipeline.settle(*TABLES)
    eventually(lambda: pipeline.known_phase("gone") is None, what="the end of a table")
    pipeline.sql("insert into late values (51)", "delete from bag", "insert into bag values (6, 'last')")
    pipeline.settle(*TABLES)
    moments["end"] = remembered(pipeline, *TABLES)
    pipeline.stop_apply()
    pipeline.stop_capture()
    return moments


def replayed(
    past: Past,
    spark: SparkSession,
    name: str,
    until: Lsn | datetime | None = None,
    missing: Missing = Missing.REFUSED,
    stop: threading.Event | None = None,
) -> Progress:
    config = past.pipeline.config().apply_config(DestinationName(name), spark_runtime())
    return run_replay(config, until, stop or threading.Event(), spark, missing)


def new(past: Past) -> tuple[str, Path]:
    name = f"d{secrets.token_hex(3)}"
    return name, add_duckdb(past.pipeline, name, REPLAYED)


def assert_as_of(path: Path, moment: Moment) -> None:
    found = {table: contents(path, table) for table in moment.rows}
    assert found == moment.rows


def test_a_new_destination_holds_all_that_the_log_has(past: Past, spark: SparkSession) -> None:
    name, path = new(past)

    held = replayed(past, spark, name)

    assert_as_of(path, past.moments["end"])
    assert {table.name for table in held.tables} == set(TABLES), "a table that left is not filled"
    assert all(isinstance(table.phase, Ready) for table in held.tables.values())
    assert held.lsn >= past.moments["end"].lsn


def test_moments_in_the_middle_are_inside_the_window_of_a_checkpoint(past: Past) -> None:
    """Or the tests below would show less than they seem to."""
    config = past.pipeline.config()
    with KafkaLog(config.kafka) as log:
        topics = Topics(config.pipeline)
        for moment in ("inside", "truncated"):
            assert target(log_of(log, topics, log_end(log, topics)), past.moments[moment].lsn).is_cut


@pytest.mark.parametrize(
    ("moment", "bound"),
    [("changed", "lsn"), ("inside", "lsn"), ("inside", "time"), ("truncated", "time"), ("altered", "lsn")],
)
def test_a_bound_gives_exactly_what_the_source_held_then(
    past: Past, spark: SparkSession, moment: str, bound: str
) -> None:
    name, path = new(past)
    wanted = past.moments[moment]

    held = replayed(past, spark, name, wanted.lsn if bound == "lsn" else wanted.time, Missing.LEFT_OUT)

    assert_as_of(path, wanted)
    assert held.lsn <= past.moments["end"].lsn


def test_a_bound_before_a_truncate_in_the_same_window_is_exact_where_spark_decodes(
    past: Past, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_KERNEL", "reference")
    name, path = new(past)

    replayed(past, spark, name, past.moments["inside"].lsn, Missing.LEFT_OUT)

    assert_as_of(path, past.moments["inside"])


def test_a_table_whose_copies_are_all_newer_is_named_and_nothing_is_written(past: Past, spark: SparkSession) -> None:
    name, path = new(past)
    moment = past.moments["changed"]

    with pytest.raises(ReplayImpossible) as refused:
        replayed(past, spark, name, moment.lsn)

    assert "public.late: Its oldest copy on the topics is of " in refused.value.reason
    assert "public.keyed" not in refused.value.reason
    assert "penstock resync" in refused.value.solution
    held = replayed(past, spark, name, moment.lsn, Missing.LEFT_OUT)
    assert_as_of(path, moment)
    assert not isinstance(held.tables[TableName("public", "late")].phase, Ready)


def test_a_moment_that_the_log_does_not_reach_is_refused(past: Past, spark: SparkSession) -> None:
    end = past.moments["end"]

    with pytest.raises(ReplayImpossible, match="The log reaches to "):
        replayed(past, spark, new(past)[0], Lsn(end.lsn + 2**40))
    with pytest.raises(ReplayImpossible, match="The newest transaction in the log was committed at "):
        replayed(past, spark, new(past)[0], end.time.replace(year=end.time.year + 1))
    with pytest.raises(ReplayImpossible, match="Nothing before 0/1 is left in the log"):
        replayed(past, spark, new(past)[0], Lsn(1))


class StopAfter(threading.Event):
    """Is set after it was asked so many times."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._looks = looks

    def is_set(self) -> bool:
        self._looks -= 1
        return self._looks < 0


def is_interrupted(past: Past, spark: SparkSession, name: str, until: Lsn | datetime | None, missing: Missing) -> bool:
    try:
        replayed(past, spark, name, until, missing, StopAfter(2))
    except ReplayInterrupted:
        return True
    return False


@pytest.mark.parametrize("bound", [None, "inside"])
def test_an_interrupted_replay_goes_on_to_its_own_end_only(
    past: Past, spark: SparkSession, bound: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_APPLY__INTERVAL_ROWS", "100")
    name, path = new(past)
    until, missing = (past.moments[bound].lsn, Missing.LEFT_OUT) if bound else (None, Missing.REFUSED)

    with pytest.raises(ReplayInterrupted, match=f"The replay into {name} was told to stop"):
        replayed(past, spark, name, until, missing, StopAfter(2))
    with pytest.raises(DestinationNotNew, match="that is not where this replay ends"):
        replayed(past, spark, name, past.moments["altered"].lsn, missing)
    while is_interrupted(past, spark, name, until, missing):
        pass

    assert_as_of(path, past.moments[bound or "end"])
    if bound is None:
        with pytest.raises(DestinationNotNew, match=f"Destination {name} has progress of its own"):
            replayed(past, spark, name)
    else:
        with pytest.raises(DestinationNotNew, match="that is not where this replay ends"):
            replayed(past, spark, name, past.moments["truncated"].lsn, missing)  # in the same window
        replayed(past, spark, name, until, missing)  # nothing is left to do
        assert_as_of(path, past.moments[bound])


def test_a_replay_fills_the_tables_that_are_selected_as_they_are_to_be_shown(past: Past, spark: SparkSession) -> None:
    name = f"d{secrets.token_hex(3)}"
    path = add_duckdb(
        past.pipeline, name, REPLAYED, 'tables = ["public.bag"]', 'columns = { "public.bag.note" = "null" }'
    )

    progress = replayed(past, spark, name)

    assert set(progress.tables) == {BAG}
    assert contents(path, "bag") == sorted((row[0], None) for row in past.moments["end"].rows["bag"])
