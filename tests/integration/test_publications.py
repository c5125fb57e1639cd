"""What the publication says is what capture carries, also if it changes while capture runs, or while it is away."""

from __future__ import annotations

from functools import partial

import psycopg
import pytest

from console.local_stack.postgres import LocalPostgres
from schemas.checkpoint import TableRemoved
from tests.support.captured import NOTICED, VIA_ROOT, MakeCaptured, next_generation, publish, reasons
from tests.support.eventually import eventually
from tests.support.postgres_version import since

LISTS_AND_FILTERS = since(15, "column lists and row filters")


def test_tables_come_and_leave_within_ten_seconds_while_others_flow_and_a_snapshot_waits(
    captured: MakeCaptured, postgres: LocalPostgres
) -> None:
    pipeline, log = captured(
        *(f"create table {table} (id int primary key)" for table in ("stays", "leaves", "comes")),
        "insert into leaves values (1)",
        "insert into comes select generate_series(1, 100)",
        publish="for table stays, leaves",
        PENSTOCK_CAPTURE__PUBLICATION_INTERVAL="3s",
    )
    log.assert_rows("leaves")
    log.assert_rows("stays")

    with psycopg.connect(postgres.dsn(pipeline.name)) as writer:
        writer.execute("insert into stays values (0)")  # not committed: the snapshot for `comes` waits for it
        publish(pipeline, "add table comes")
        eventually(lambda: reasons(pipeline, "comes"), seconds=NOTICED, what="the new table to be noticed")
        publish(pipeline, "drop table leaves")
        pipeline.sql("insert into stays values (1)", "insert into leaves values (2)")
        eventually(lambda: log.is_removed("leaves"), seconds=NOTICED, what="the removed table to be noticed")
        eventually(lambda: log.rows("stays") == [(1,)], seconds=NOTICED, what="a row of another table")
        assert log.generations("comes") == []

    log.assert_rows("comes", seconds=NOTICED)
    log.assert_rows("stays")
    assert [len(log.generations(table)) for table in ("stays", "leaves", "comes")] == [1, 1, 1]
    assert sum(isinstance(marker, TableRemoved) for marker in log.markers("leaves")) == 1
    assert pipeline.stop_capture() == 0


def test_a_table_that_leaves_in_the_middle_of_its_copy_is_retired_and_comes_back_whole(captured: MakeCaptured) -> None:
    pipeline, log = captured(
        "create table t (id int primary key, a text)",
        "insert into t select i, repeat(md5(i::text), 4) from generate_series(1, 60000) i",
        publish="for table t",
        PENSTOCK_KERNEL="reference",
        PENSTOCK_CAPTURE__COPY_RANGE_SIZE="64KiB",
    )
    eventually(lambda: pipeline.copied_records("t") > 1_000, what="a part of the copy")

    publish(pipeline, "drop table t")
    eventually(lambda: log.is_removed("t"), seconds=NOTICED, what="the table to be retired")
    assert pipeline.copied_records("t") < 60_000, "it left too late to be in the middle"
    pipeline.sql("delete from t where id > 1000")
    publish(pipeline, "add table t")

    log.assert_rows("t")
    assert len(log.generations("t")) == 2


def test_a_table_that_left_and_came_back_between_two_looks_has_no_hole(captured: MakeCaptured) -> None:
    pipeline, log = captured(
        "create table t (id int primary key)", publish="for table t", PENSTOCK_CAPTURE__PUBLICATION_INTERVAL="3s"
    )
    log.assert_rows("t")

    publish(pipeline, "drop table t")
    pipeline.sql("insert into t values (1)")
    publish(pipeline, "add table t")
    pipeline.sql("insert into t values (2)")

    next_generation(log, "t", 1)
    log.assert_rows("t")
    assert reasons(pipeline, "t")[1:] == ["it is published otherwise: entry"]


@pytest.mark.parametrize(
    ("before", "drop", "add"),
    [
        ("for table t", "drop table t", "add table t"),
        pytest.param(
            "for tables in schema public",
            "drop tables in schema public",
            "add tables in schema public",
            marks=since(15, "a publication of schemas"),
        ),
        ("for table parted", "drop table parted", "add table parted"),
        (f"for table parted {VIA_ROOT}", "drop table parted", "add table parted"),
    ],
)
def test_what_was_written_while_a_table_was_not_published_and_capture_away_arrives(
    captured: MakeCaptured, before: str, drop: str, add: str
) -> None:
    pipeline, log = captured(
        "create table t (id int primary key)",
        "create table parted (id int primary key) partition by range (id)",
        "create table leaf partition of parted for values from (0) to (100)",
        publish=before,
    )
    table = "t" if "parted" not in before else "parted" if VIA_ROOT in before else "leaf"
    pipeline.sql(f"insert into {table} values (1)")
    log.assert_rows(table)
    pipeline.stop_capture()

    publish(pipeline, drop)
    pipeline.sql(f"insert into {table} values (2)", f"delete from {table} where id = 1")
    publish(pipeline, add)
    pipeline.start_capture()

    log.assert_rows(table)
    assert len(log.generations(table)) == 2


@LISTS_AND_FILTERS
def test_a_restart_without_a_change_of_the_publication_copies_nothing(captured: MakeCaptured) -> None:
    pipeline, log = captured(
        "create table t (id int primary key, a int, b int)",
        "create table parted (id int primary key) partition by range (id)",
        "create table leaf partition of parted for values from (0) to (100)",
        publish=f"for table t (id, a) where (id > 0), parted {VIA_ROOT}",
    )
    log.assert_rows("t", "select id, a from t")
    log.assert_rows("parted")
    pipeline.stop_capture()

    pipeline.sql("vacuum full t", "vacuum freeze leaf", "insert into t values (1, 2, 3)", "insert into leaf values (1)")
    pipeline.start_capture()

    log.assert_rows("t", "select id, a from t")
    log.assert_rows("parted")
    assert [len(log.generations(table)) for table in ("t", "parted")] == [1, 1]


@LISTS_AND_FILTERS
def test_a_column_list_and_a_row_filter_that_change_make_the_next_generation(captured: MakeCaptured) -> None:
    pipeline, log = captured(
        "create table t (id int primary key, a text, b text)",
        "insert into t select i, 'a', 'b' from generate_series(1, 20) i",
        publish="for table t (id, a) where (id <= 10)",
    )
    log.assert_rows("t", "select id, a from t where id <= 10")

    publish(pipeline, "set table t (id, b) where (id <= 10)")  # and nothing is written to the table
    next_generation(log, "t", 1)
    log.assert_rows("t", "select id, b from t where id <= 10")
    copies = len(log.generations("t"))
    publish(pipeline, "set table t (id, b) where (id > 5)")
    next_generation(log, "t", copies)
    pipeline.sql("update t set b = 'c' where id = 7", "update t set id = id + 100 where id in (1, 8)")

    log.assert_rows("t", "select id, b from t where id > 5")
    said = reasons(pipeline, "t")
    assert said[1] == "it is published otherwise: column list, entry"
    assert said[-1] == "it is published otherwise: entry, row filter"


@LISTS_AND_FILTERS
def test_rows_that_enter_and_leave_a_row_filter_come_and_go(captured: MakeCaptured) -> None:
    pipeline, log = captured(
        "create table t (id int primary key, a int)",
        "insert into t values (1, 1), (2, 20), (3, 3)",
        "alter table t replica identity full",
        publish="for table t where (a < 10)",
    )
    log.assert_rows("t", "select * from t where a < 10")

    pipeline.sql("update t set a = 30 where id = 1", "update t set a = 2 where id = 2", "delete from t where id = 3")

    log.assert_rows("t", "select * from t where a < 10")
    assert len(log.generations("t")) == 1


def test_a_publication_that_withholds_operations_is_refused_at_the_start_and_while_running(
    captured: MakeCaptured,
) -> None:
    pipeline, log = captured("create table t (id int primary key)", publish="for table t")
    log.assert_rows("t")
    assert pipeline.capture is not None

    publish(pipeline, "set (publish = 'insert, update')")

    assert pipeline.capture.process.wait(NOTICED) == 1
    assert "does not publish delete and truncate" in pipeline.capture.failure().reason
    pipeline.capture.close()
    pipeline.start_capture()
    assert pipeline.capture.process.wait(30) == 1
    assert "partial_publish" in pipeline.capture.failure().solution
    pipeline.capture.close()
    pipeline.start_capture(PENSTOCK_SOURCE__PARTIAL_PUBLISH="allow")
    next_generation(log, "t", 1)
    log.assert_rows("t")
    pipeline.sql("insert into t values (1), (2)", "delete from t where id = 1")
    log.assert_rows("t", "select generate_series(1, 2)")
    publish(pipeline, "set (publish = 'insert, update, delete, truncate')")
    next_generation(log, "t", len(log.generations("t")))
    log.assert_rows("t")


def test_for_all_tables_takes_new_tables_of_every_schema_but_never_our_own(captured: MakeCaptured) -> None:
    pipeline, log = captured(
        "create schema penstock",
        "create table penstock.heartbeat (id int primary key)",
        "create table t (id int primary key)",
        publish="for all tables",
    )
    log.assert_rows("t")

    pipeline.sql(
        "create schema other",
        "create table other.late (id int primary key)",
        "create table penstock.late (id int primary key)",
        """
        begin;
        insert into penstock.heartbeat values (1);
        insert into t values (1);
        insert into penstock.late values (1);
        insert into other.late values (1);
        truncate penstock.late;
        insert into t values (2);
        commit""",
    )

    log.assert_rows("other.late")
    log.assert_rows("t")
    assert log.markers("penstock.heartbeat") == log.markers("penstock.late") == []
    assert log.table_topics() == {"public.t", "other.late"}
    assert len(log.generations("t")) == 1


def test_a_table_that_is_dropped_and_made_again_and_one_that_is_renamed_or_moved_are_other_tables(
    captured: MakeCaptured,
) -> None:
    pipeline, log = captured(
        "create schema other",
        *(f"create table {name} (id int primary key)" for name in ("t", "old_name", "moved")),
        *(f"insert into {name} values (1)" for name in ("t", "old_name", "moved")),
        publish="for all tables",
    )
    for table in ("t", "old_name", "moved"):
        log.assert_rows(table)

    pipeline.sql("drop table t", "create table t (id int primary key)", "insert into t values (2)")
    pipeline.sql("alter table old_name rename to new_name", "insert into new_name values (2)")
    pipeline.sql("alter table moved set schema other", "insert into other.moved values (2)")

    for table in ("t", "new_name", "other.moved"):
        log.assert_rows(table)
    for table in ("old_name", "moved"):
        eventually(partial(log.is_removed, table), seconds=NOTICED, what=f"{table} to be retired")


def test_a_publication_of_patterns_is_made_and_follows_the_tables_of_the_database(captured: MakeCaptured) -> None:
    pipeline, log = captured(
        "create table t (id int primary key)",
        "create table audit (id int primary key)",
        "create unlogged table fleeting (id int primary key)",
        "create table parted (id int primary key) partition by range (id)",
        "create table leaf partition of parted for values from (0) to (100)",
        "insert into parted values (1)",
        publish=None,
        source='tables = ["public.*", "!public.audit"]',
    )
    log.assert_rows("t")
    log.assert_rows("parted")

    pipeline.sql("create table late (id int primary key)", "insert into late values (1)", "drop table t")

    log.assert_rows("late")
    eventually(lambda: log.is_removed("t"), seconds=NOTICED, what="the dropped table to be retired")
    assert log.table_topics() == {"public.t", "public.parted", "public.late"}


def test_a_publication_that_somebody_else_made_is_not_changed_by_patterns(captured: MakeCaptured) -> None:
    pipeline, _ = captured("create table t (id int)", publish="", source='tables = ["public.*"]')
    assert pipeline.capture is not None

    assert pipeline.capture.process.wait(30) == 1
    assert "was not made by this pipeline" in pipeline.capture.failure().reason
    assert pipeline.source.execute("select from pg_publication_tables").fetchall() == []
