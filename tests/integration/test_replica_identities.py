"""What Postgres logs of an old row, in every way that it can be told to, and what it computes itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from schemas.checkpoint import SchemaChanged
from tests.support.captured import (
    VIA_ROOT,
    MakeCaptured,
    a_partitioned_table,
    captures,
    next_generation,
    publish,
    reasons,
)


@pytest.mark.parametrize(
    ("identity", "key"),
    [
        ("default", ["id"]),
        ("full", ["id"]),
        ("using index t_other", ["other"]),
    ],
)
def test_updates_deletes_and_key_changes_follow_the_replica_identity(
    captured: MakeCaptured, identity: str, key: list[str]
) -> None:
    pipeline, log = captured(
        "create table t (id int primary key, other int not null, long text)",
        "create unique index t_other on t (other)",
        "alter table t alter long set storage external",
        f"alter table t replica identity {identity}",
        "insert into t select i, -i, repeat(i::text, 3000) from generate_series(1, 9) i",
        publish="for table t",
    )
    log.assert_rows("t")

    pipeline.sql(
        "update t set long = 'short' where id = 1",
        "update t set id = 100 where id = 2",
        "update t set other = 100 where id = 3",
        "update t set id = 40, other = 40 where id = 4",
        "delete from t where id = 5",
        "insert into t values (5, -5, 'again')",
    )

    log.assert_rows("t")
    assert log.key("t") == key
    assert len(log.generations("t")) == 1


@pytest.mark.parametrize("create", ["create table t (a int)", "create table t (a int primary key)"])
def test_a_table_with_nothing_that_identifies_a_row_has_inserts_and_truncates(
    captured: MakeCaptured, create: str
) -> None:
    pipeline, log = captured(
        create,
        "alter table t replica identity nothing",
        "insert into t values (1)",
        publish="for table t",
    )
    log.assert_rows("t")

    pipeline.sql("insert into t values (2)")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        pipeline.sql("delete from t")
    log.assert_rows("t")
    pipeline.sql("truncate t", "insert into t values (3)")

    log.assert_rows("t")


def test_an_identity_that_changes_while_capture_runs_is_followed(captured: MakeCaptured) -> None:
    pipeline, log = captured(
        "create table t (id int primary key, other int not null unique, a text)",
        "insert into t select i, -i, 'copied' from generate_series(1, 5) i",
        publish="for table t",
    )
    log.assert_rows("t")

    for change in (
        "alter table t replica identity full",
        "alter table t replica identity using index t_other_key",
        "alter table t drop constraint t_pkey",
        "alter table t replica identity full",
        "alter table t drop constraint t_other_key",
    ):
        pipeline.sql(
            change,
            "update t set a = a || '+' where id = 1",
            "delete from t where id = (select max(id) from t)",
            "insert into t select max(id) + 10, -max(id) - 10, 'new' from t",
        )
        log.assert_rows("t")
    assert any(isinstance(marker, SchemaChanged) for marker in log.markers("t"))


def test_a_partition_with_another_identity_than_its_root_loses_no_value_at_a_key_change(captured: MakeCaptured) -> None:
    pipeline, log = captured(
        "create table t (id int primary key, long text) partition by range (id)",
        "alter table t replica identity full",  # which does not reach the partitions
        "create table t_a partition of t for values from (0) to (100)",
        "alter table t_a alter long set storage external",
        "insert into t values (1, repeat('long', 3000)), (2, 'short')",
        publish=f"for table t {VIA_ROOT}",
    )
    log.assert_rows("t")

    pipeline.sql(
        "update t set id = 10 where id = 1", "update t set long = 'new' where id = 2", "insert into t values (3)"
    )
    pipeline.sql("delete from t where id = 3")

    log.assert_rows("t")
    assert len(log.generations("t")) == 1


def test_generated_columns_are_left_out_of_copy_and_stream(captured: MakeCaptured) -> None:
    pipeline, log = captured(
        "create table t (id int primary key, twice int generated always as (id * 2) stored, a text)",
        "insert into t (id, a) values (1, 'copied')",
        publish="for table t",
    )
    log.assert_rows("t", "select id, a from t")

    pipeline.sql("insert into t (id, a) values (2, 'new')", "update t set id = 3 where id = 1")

    log.assert_rows("t", "select id, a from t")
    assert len(log.generations("t")) == 1


@pytest.fixture(
    scope="module", params=[int(v) for v in os.environ.get("PENSTOCK_TEST_PUBLICATIONS", "14,18").split(",")]
)
def other_server(request: pytest.FixtureRequest) -> Iterator[LocalPostgres]:
    with LocalPostgres(request.param) as server:
        yield server


def test_other_versions_of_postgres_are_read_as_well(
    other_server: LocalPostgres, kafka: LocalKafka, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        pipeline, log = captures(stack, other_server, kafka, tmp_path)(
            *a_partitioned_table(
                "create table other (id int primary key, twice int generated always as (id * 2) stored)"
            ),
            "insert into other values (1)",
            publish=f"for table t, other {VIA_ROOT}",
        )
        log.assert_rows("t")
        log.assert_rows("other", "select id from other")

        pipeline.sql("truncate t_a", "insert into t values (5, 'new')", "insert into other values (2)")
        log.assert_rows("t")
        log.assert_rows("other", "select id from other")
        assert [len(log.generations(table)) for table in ("t", "other")] == [2, 1]
        if other_server.version < 18:
            return
        publish(pipeline, "set (publish_generated_columns = stored)")
        next_generation(log, "other", 1)
        pipeline.sql("insert into other values (3)", "update other set id = 4 where id = 1")
        log.assert_rows("other")
        assert "publish_generated_columns" in reasons(pipeline, "other")[1]
