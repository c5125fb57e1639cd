"""Partitions come, leave, and are emptied; published in the name of their root or in their own, no row is lost."""

from __future__ import annotations

import secrets

import psycopg
import pytest

from capture.publication import filenode
from capture.table_sync.membership import members
from console.local_stack.postgres import LocalPostgres
from schemas.identifiers import TableId
from tests.support.captured import (
    NOTICED,
    VIA_ROOT,
    MakeCaptured,
    a_partitioned_table,
    publish,
    reasons,
)
from tests.support.eventually import eventually

ATTACHED = "alter table t attach partition full_one for values from (200) to (300)"
ATTACHED_AGAIN = """
    begin;
    alter table t detach partition t_a;
    update t_a set a = 'outside';
    insert into t_a values (55, 'outside');
    alter table t attach partition t_a for values from (0) to (100);
    commit"""
MADE_WITH_ROWS = """
    begin;
    create table t_c (id int primary key, a text);
    insert into t_c values (500, 'before');
    alter table t attach partition t_c for values from (500) to (600);
    commit"""


def test_a_partition_that_comes_empty_costs_no_copy_and_its_rows_arrive_in_the_name_of_the_root(
    captured: MakeCaptured,
) -> None:
    pipeline, log = captured(*a_partitioned_table(), publish=f"for table t {VIA_ROOT}")
    log.assert_rows("t")

    pipeline.sql(
        "create table t_c partition of t for values from (200) to (300)",
        "insert into t values (200, 'new')",
        "create table t_d (id int not null, a text)",
        "alter table t attach partition t_d for values from (300) to (400)",
        "insert into t_d values (300, 'new')",
        "update t set id = 301 where id = 0",
        "update t set id = 161 where id = 20",
    )
    log.assert_rows("t")
    pipeline.stop_capture()
    pipeline.sql("create table t_e partition of t for values from (400) to (500)", "insert into t values (400, 'new')")
    pipeline.start_capture()

    log.assert_rows("t")
    assert len(log.generations("t")) == 1
    assert log.table_topics() == {"public.t"}


def test_a_partition_that_comes_at_the_moment_of_a_look_is_left_to_the_next(postgres: LocalPostgres) -> None:
    """Else the look remembers it without its attachment, and the next one takes it for another: a copy for nothing."""
    name = f"t{secrets.token_hex(4)}"
    with (
        psycopg.connect(postgres.dsn(), autocommit=True) as admin,
        psycopg.connect(postgres.dsn(), autocommit=True) as session,
    ):
        admin.execute(f"create table {name} (id int) partition by list (id)")
        row = admin.execute("select %s::regclass::oid::bigint", [name]).fetchone()
        assert row is not None
        table = TableId(row[0])
        session.execute("begin transaction isolation level repeatable read")
        before = filenode(session, table)
        admin.execute(f"create table {name}_one partition of {name} for values in (1)")

        at_the_moment = filenode(session, table)
        session.execute("commit")
        after = filenode(session, table)
        admin.execute(f"drop table {name}")

    assert at_the_moment == before
    assert members(before) < members(after)


@pytest.mark.parametrize(
    ("change", "capture"),
    [
        (ATTACHED, "running"),
        (ATTACHED, "away"),
        ("alter table t attach partition nested for values from (300) to (400)", "running"),
        ("alter table t detach partition t_a", "running"),
        ("alter table t detach partition t_b", "away"),
        ("drop table t_b1", "running"),
        ("truncate t_a", "running"),
        ("truncate t_a", "away"),
        (ATTACHED_AGAIN, "running"),
        (ATTACHED_AGAIN, "away"),
        (MADE_WITH_ROWS, "running"),
    ],
)
def test_rows_that_come_to_a_root_or_leave_it_with_a_partition_make_the_next_generation(
    captured: MakeCaptured, change: str, capture: str
) -> None:
    pipeline, log = captured(
        *a_partitioned_table(
            "create table full_one (id int primary key, a text)",
            "insert into full_one select i, 'attached' from generate_series(200, 299, 10) i",
            "create table nested (id int primary key, a text) partition by range (id)",
            "create table nested_1 partition of nested for values from (300) to (400)",
            "insert into nested values (300, 'attached')",
        ),
        publish=f"for table t {VIA_ROOT}",
    )
    log.assert_rows("t")
    if capture == "away":
        pipeline.stop_capture()

    pipeline.sql(change)
    if capture == "away":
        pipeline.start_capture()

    log.assert_rows("t")
    assert len(log.generations("t")) == 2
    assert "partition" in reasons(pipeline, "t")[-1]


def test_leaves_that_are_published_by_their_own_names_are_tables_of_their_own(captured: MakeCaptured) -> None:
    pipeline, log = captured(
        *a_partitioned_table(
            "create table full_one (id int primary key, a text)", "insert into full_one values (200, 'attached')"
        ),
        publish="for table t",
    )
    for leaf in ("t_a", "t_b1", "t_b2"):
        log.assert_rows(leaf)

    pipeline.sql(
        "truncate t_a",
        "create table t_b3 partition of t_b default",
        "alter table t attach partition full_one for values from (200) to (300)",
        "insert into t values (1, 'new'), (201, 'new')",
        "update t set id = 2 where id = 110",
        "alter table t_b detach partition t_b2",
        "insert into t values (160, 'new')",
    )

    for leaf in ("t_a", "t_b1", "t_b3", "full_one"):
        log.assert_rows(leaf)
    eventually(lambda: log.is_removed("t_b2"), seconds=NOTICED, what="the detached leaf to be retired")
    assert [len(log.generations(leaf)) for leaf in ("t_a", "t_b1", "t_b3", "full_one", "t_b2", "t")] == [
        1,
        1,
        1,
        1,
        1,
        0,
    ]
    pipeline.sql("truncate t")
    for leaf in ("t_a", "t_b1", "t_b3", "full_one"):
        log.assert_rows(leaf)


def test_publish_via_partition_root_that_is_switched_changes_leaves_to_their_root_and_back(
    captured: MakeCaptured,
) -> None:
    pipeline, log = captured(*a_partitioned_table(), publish="for table t")
    log.assert_rows("t_a")

    publish(pipeline, "set (publish_via_partition_root = true)")
    pipeline.sql("insert into t values (1, 'new')")
    log.assert_rows("t")
    eventually(lambda: log.is_removed("t_a"), seconds=NOTICED, what="the leaf to be retired")
    publish(pipeline, "set (publish_via_partition_root = false)")
    pipeline.sql("insert into t values (2, 'new')")

    log.assert_rows("t_a")
    log.assert_rows("t_b1")
    eventually(lambda: log.is_removed("t"), seconds=NOTICED, what="the root to be retired")


def test_a_truncate_of_the_root_empties_it(captured: MakeCaptured) -> None:
    pipeline, log = captured(*a_partitioned_table(), publish=f"for table t {VIA_ROOT}")
    log.assert_rows("t")

    pipeline.sql("truncate t", "insert into t values (1, 'after')")

    log.assert_rows("t")


def test_parents_and_children_of_plain_inheritance_are_tables_of_their_own(captured: MakeCaptured) -> None:
    pipeline, log = captured(
        "create table parent (id int primary key, a text)",
        "create table child (b int, primary key (id)) inherits (parent)",
        "insert into parent values (1, 'copied')",
        "insert into child values (2, 'copied', 3)",
        publish="for table parent",  # and with it its children of now
    )
    log.assert_rows("parent", "select * from only parent")
    log.assert_rows("child")

    pipeline.sql(
        "insert into parent values (4, 'new')",
        "update parent set a = 'all'",
        "create table later (primary key (id)) inherits (parent)",
        "insert into later values (5, 'new')",
    )
    log.assert_rows("parent", "select * from only parent")
    log.assert_rows("child")
    pipeline.sql("truncate parent")

    log.assert_rows("parent", "select * from only parent")
    log.assert_rows("child")
    assert log.generations("later") == []
