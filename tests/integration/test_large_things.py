"""Many tables, wide tables, many subtransactions, large rows; and transactions that come from elsewhere or end late."""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from hashlib import sha256

import psycopg
import pytest
from typer.testing import CliRunner

from console.cli import app
from console.local_stack.postgres import LocalPostgres
from schemas.checkpoint import CopyFinished, TableErrored
from schemas.identifiers import TableName
from schemas.topics import Topics
from tests.support.captured import Captured, MakeCaptured, publish
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline

TABLES = 200
MEGABYTE = 1024**2
TRANSACTION_ROWS = int(os.environ.get("PENSTOCK_TEST_TRANSACTION_ROWS", "300000"))
"""`make test-large` takes ten million."""
TRANSACTIONS_A_SECOND = 10_000
MOST_COLUMNS = 1600


def copied(pipeline: Pipeline) -> dict[TableName, int]:
    """Rows of the finished copies."""
    markers = [marker for each in pipeline.checkpoints() for marker in each.markers]
    return {marker.table: marker.rows for marker in markers if isinstance(marker, CopyFinished)}


def streamed(pipeline: Pipeline) -> Counter[str]:
    """Rows by change topic, as the checkpoints count them."""
    rows: Counter[str] = Counter()
    for each in pipeline.checkpoints():
        for moved in each.moved:
            rows[moved.topic] += moved.rows
    return rows


def test_two_hundred_tables_of_one_publication_are_copied_and_streamed(captured: MakeCaptured) -> None:
    names = [f"t{number}" for number in range(TABLES)]
    pipeline, log = captured(
        *(f"create table {name} (id int primary key, a text)" for name in names),
        *(f"insert into {name} select i, '{name}' from generate_series(1, 10) i" for name in names),
        publish="for all tables",
    )
    eventually(lambda: len(copied(pipeline)) == TABLES, seconds=90, what="a copy of every table")

    with pipeline.source.transaction():
        pipeline.sql(*(f"insert into {name} select i, 'later' from generate_series(11, 15) i" for name in names))
    for name in ("t0", "t77", f"t{TABLES - 1}"):
        log.assert_rows(name)

    assert set(copied(pipeline).values()) == {10}
    topics = Topics(pipeline.config().pipeline)
    assert streamed(pipeline) == {topics.changes(TableName("public", name)): 5 for name in names}


def test_a_table_of_as_many_columns_as_postgres_allows_is_exact(captured: MakeCaptured) -> None:
    columns = ", ".join(f"c{number} int" for number in range(1, MOST_COLUMNS))
    values = ", ".join(f"i + {number}" for number in range(1, MOST_COLUMNS))
    pipeline, log = captured(
        f"create table wide (id int primary key, {columns})",
        f"insert into wide select i, {values} from generate_series(1, 3) i",
        publish="for table wide",
    )
    log.assert_rows("wide")

    pipeline.sql(
        f"insert into wide select i, {values} from generate_series(4, 6) i",
        "update wide set c1599 = null where id = 2",
        "delete from wide where id = 3",
    )

    log.assert_rows("wide")


def test_fifty_thousand_subtransactions_of_one_transaction_arrive_and_those_rolled_back_do_not(
    captured: MakeCaptured,
) -> None:
    pipeline, log = captured("create table t (id int primary key)", publish="for table t")
    log.assert_rows("t")

    pipeline.sql(
        """
        do $$
        begin
            for i in 1..50000 loop
                begin
                    insert into t values (i);
                    if i % 10 = 0 then
                        raise exception 'undone';
                    end if;
                exception when raise_exception then
                end;
            end loop;
        end $$
        """
    )

    target = pipeline.wal_lsn()
    eventually(lambda: pipeline.checkpoint_lsn() >= target, seconds=90, what="a checkpoint")
    assert pipeline.records(pipeline.change_topic("t")) == 45_000
    assert pipeline.capture_peak_bytes() < 300 * MEGABYTE


@pytest.mark.timeout(1200)
def test_one_huge_transaction_arrives_whole_and_costs_capture_no_memory(captured: MakeCaptured) -> None:
    pipeline, log = captured("create table t (id bigint, note text)", publish="for table t")
    log.assert_rows("t")
    insert = "insert into t select i, 'order ' || i from generate_series(1, {}) i"
    pipeline.sql(insert.format(10_000))
    log.assert_reached()
    ordinary = pipeline.capture_peak_bytes()

    pipeline.sql(insert.format(TRANSACTION_ROWS))
    log.assert_reached(seconds=60 + TRANSACTION_ROWS / 20_000)

    assert pipeline.records(pipeline.change_topic("t")) == 10_000 + TRANSACTION_ROWS
    grown = pipeline.capture_peak_bytes() - ordinary
    print(f"{TRANSACTION_ROWS:,} rows in one transaction: {ordinary:,} bytes before it, {grown:,} more")  # noqa: T201
    assert grown < 80 * MEGABYTE, "what waits for Kafka is bounded by capture.producer_memory, 64 MB"


@pytest.mark.alone
def test_ten_thousand_tiny_transactions_a_second_are_kept_up_with(captured: MakeCaptured) -> None:
    seconds = 5
    pipeline, log = captured(
        "create table t (id int)",
        f"""
        create procedure write_at_a_rate() language plpgsql as $$
        declare
            began timestamptz := clock_timestamp();
        begin
            for burst in 1..{seconds * 20} loop
                for i in 1..{TRANSACTIONS_A_SECOND // 20} loop
                    insert into t values (i);
                    commit;
                end loop;
                perform pg_sleep_until(began + burst * interval '50 ms');
            end loop;
        end $$
        """,
        publish="for table t",
    )
    log.assert_reached()

    began = time.monotonic()
    pipeline.sql("call write_at_a_rate()")
    written = time.monotonic()
    log.assert_reached(seconds=60)
    behind = time.monotonic() - written

    rate = seconds * TRANSACTIONS_A_SECOND / (written - began)
    print(f"{rate:,.0f} transactions a second, captured {behind:.2f} s after the last one")  # noqa: T201
    assert pipeline.records(pipeline.change_topic("t")) == seconds * TRANSACTIONS_A_SECOND
    assert rate > 0.8 * TRANSACTIONS_A_SECOND, "the server did not write as fast as this test wants to"
    assert behind < 3.0


def status_of(pipeline: Pipeline) -> str:
    return CliRunner().invoke(app(), ["status", "-c", str(pipeline.file)]).stdout


def test_a_prepared_transaction_is_waited_for_by_name_and_arrives_once_it_is_committed(
    captured: MakeCaptured,
) -> None:
    pipeline, log = captured(
        "create table t (id int primary key)", "create table added (id int primary key)", publish="for table t"
    )
    log.assert_rows("t")
    gid = f"order of {pipeline.name}"
    pipeline.sql("begin", "insert into t values (1)", "insert into added values (1)", f"prepare transaction '{gid}'")

    try:
        publish(pipeline, "add table added")
        pipeline.sql("insert into t values (2)")
        eventually(lambda: f"prepared transaction {gid!r}" in status_of(pipeline), what="its name in the status")
        eventually(lambda: gid in str(waits_in_log(pipeline)), what="its name in the log")
        eventually(lambda: log.rows("t") == [(2,)], what="the other rows")
        assert log.generations("added") == []
    finally:
        pipeline.sql(f"commit prepared '{gid}'")  # or it would hold up every snapshot of the server
    pipeline.sql("insert into added values (2)")

    log.assert_rows("t")
    log.assert_rows("added")


def waits_in_log(pipeline: Pipeline) -> list[object]:
    lines = (pipeline.folder / "capture0.log").read_text().splitlines()
    entries = [json.loads(line) for line in lines if '"slot waits for open transactions"' in line]
    return [entry["prepared"] for entry in entries]


def as_if_replicated(pipeline: Pipeline, postgres: LocalPostgres, statement: str) -> None:
    """In a session that says, as a subscription does, that it repeats what another server did."""
    with psycopg.connect(postgres.dsn(pipeline.name), autocommit=True) as applier:
        applier.execute(f"select pg_replication_origin_create('{pipeline.name}')")
        applier.execute(f"select pg_replication_origin_session_setup('{pipeline.name}')")
        applier.execute(statement)
        applier.execute("select pg_replication_origin_session_reset()")
        applier.execute(f"select pg_replication_origin_drop('{pipeline.name}')")


def test_rows_that_were_replicated_to_the_source_or_written_as_a_replica_arrive(
    captured: MakeCaptured, postgres: LocalPostgres
) -> None:
    pipeline, log = captured("create table t (id int primary key, a text)", publish="for table t")
    log.assert_rows("t")

    as_if_replicated(pipeline, postgres, "insert into t values (1, 'from elsewhere')")
    pipeline.sql("insert into t values (2, 'from here')", "set session_replication_role = replica")
    pipeline.sql("insert into t values (3, 'as a replica')", "delete from t where id = 2")

    log.assert_rows("t")


def test_rows_that_were_replicated_to_the_source_are_left_out_where_that_is_asked_for(
    captured: MakeCaptured, postgres: LocalPostgres
) -> None:
    pipeline, log = captured(
        "create table t (id int primary key, a text)", publish="for table t", source='origin = "none"'
    )
    if postgres.version < 16:
        refusal = pipeline.refused()
        assert "needs Postgres 16" in refusal.reason
        assert "source.origin" in refusal.solution
        return
    log.assert_rows("t")

    as_if_replicated(pipeline, postgres, "insert into t values (1, 'from elsewhere')")
    pipeline.sql("insert into t values (2, 'from here')")

    log.assert_rows("t", "select * from t where id = 2")


def stops(log: Captured, table: str) -> TableErrored | None:
    found = [marker for marker in log.markers(table) if isinstance(marker, TableErrored)]
    return found[-1] if found else None


def assert_names_the_setting(stop: TableErrored | None) -> None:
    assert stop is not None
    assert re.fullmatch(r"A row needs a record of 209,71\d,\d{3} bytes; 67,108,864 are allowed\.", stop.reason)
    assert "Raise `kafka.max_record`" in stop.solution


ALLOWED_MEGABYTES = int(os.environ.get("PENSTOCK_TEST_ROW_MEGABYTES", "80"))
"""Of a row for which the limits were raised: more than a record may have without that. `make test-large` takes 200."""


def four_large_values(megabytes: int) -> str:
    """Of so many megabytes together."""
    return ", ".join(f"repeat('{letter}123456789', {megabytes * MEGABYTE // 40})" for letter in "abcd")


LARGE_COLUMNS = "id int primary key, a text, b text, c text, d text"
A_JVM_FOR_LARGE_ROWS = """
[apply]
driver_memory = "4g"
[apply.spark]
"spark.driver.extraJavaOptions" = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""
"""It runs out of memory with 2g."""


def test_a_row_that_is_too_large_stops_its_table_in_copy_and_in_stream_and_the_others_go_on(
    captured: MakeCaptured,
) -> None:
    pipeline, log = captured(
        *(f"create table {table} ({LARGE_COLUMNS})" for table in ("streams", "copies", "other")),
        f"insert into copies values (1, {four_large_values(200)})",
        publish="for table streams, copies, other",
    )
    log.assert_rows("streams")
    eventually(lambda: stops(log, "copies"), what="the copied table to stop")

    pipeline.sql(f"insert into streams values (1, {four_large_values(200)})", "insert into other values (1, 'small')")
    eventually(lambda: stops(log, "streams"), what="the streamed table to stop")

    log.assert_rows("other")
    assert_names_the_setting(stops(log, "copies"))
    assert_names_the_setting(stops(log, "streams"))
    assert pipeline.capture_peak_bytes() < 900 * MEGABYTE
    assert pipeline.stop_capture() == 0


def test_a_larger_row_arrives_by_copy_and_by_stream_where_the_limits_allow_it(captured: MakeCaptured) -> None:
    values = four_large_values(ALLOWED_MEGABYTES)
    pipeline, _ = captured(
        f"create table t ({LARGE_COLUMNS})",
        f"insert into t values (1, {values})",
        publish="for table t",
        toml=A_JVM_FOR_LARGE_ROWS,
        PENSTOCK_KAFKA__MAX_RECORD="230MB",
    )
    pipeline.start_apply_process()
    eventually(lambda: pipeline.copied_records("t") == 1, what="the copied row on Kafka")

    pipeline.sql(f"insert into t values (2, {values})")
    pipeline.settle("t", seconds=180)

    sums = [
        sha256(f"{letter}123456789".encode() * (ALLOWED_MEGABYTES * MEGABYTE // 40)).hexdigest() for letter in "abcd"
    ]
    rows = pipeline.lake("select id, sha256(a), sha256(b), sha256(c), sha256(d) from public.t order by id")
    assert rows == [(1, *sums), (2, *sums)]
    assert pipeline.capture_peak_bytes() < 900 * MEGABYTE


def test_a_limit_that_a_broker_would_not_keep_is_refused_with_the_setting_that_helps(captured: MakeCaptured) -> None:
    pipeline, _ = captured(
        "create table t (id int primary key)", publish="for table t", PENSTOCK_KAFKA__MAX_RECORD="300MB"
    )

    refusal = pipeline.refused()

    assert "no request above 268,435,456" in refusal.reason
    assert "socket.request.max.bytes" in refusal.solution
