"""A network that is cut without a word: capture and apply notice within a bounded time, and go on exactly."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from apply_spark.destinations.postgres import PostgresDestination
from apply_spark.errors import DestinationAway, DestinationInUse
from apply_spark.progress import Progress
from capture.promotion import PromotionWatch
from capture.replication_connection import session_dsn
from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from destination_contract.batches import a_progress
from schemas.identifiers import DestinationName, SlotName
from stores.patient_session import PatientSession
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline
from tests.support.proxy import Proxy

TIMEOUT_SECONDS = 2
NOTICED_SECONDS = 25
LAKE = DestinationName("lake")


def walsender(pipeline: Pipeline) -> int | None:
    row = pipeline.source.execute(
        "select active_pid from pg_replication_slots where slot_name = %s", [f"penstock_{pipeline.name}"]
    ).fetchone()
    return row[0] if row else None


@contextmanager
def paused(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_cut_that_only_the_server_notices_is_found_out_and_the_stream_goes_on_exactly(
    postgres: LocalPostgres, kafka: LocalKafka, tmp_path: Path
) -> None:
    """Something between answers for the server, so TCP sees nothing wrong. All sessions are cut, table sync's too."""
    with (
        Proxy(postgres.port) as proxy,
        Pipeline(f"t{secrets.token_hex(4)}", postgres, kafka, None, tmp_path) as pipeline,
    ):
        pipeline.sql(
            f"alter database {pipeline.name} set wal_sender_timeout = '{TIMEOUT_SECONDS}s'",
            "create table t (id bigint primary key, a text)",
            "insert into t select i, 'row ' || i from generate_series(1, 100) i",
        )
        pipeline.publish("t")
        pipeline.start_capture(PENSTOCK_SOURCE__DSN=make_conninfo(postgres.dsn(pipeline.name), port=proxy.port))
        copied = pipeline.assert_captured()
        before = walsender(pipeline)
        pipeline.sql("insert into t select i, 'in flight' from generate_series(101, 20000) i")

        proxy.cut()
        began = time.monotonic()
        pipeline.sql("insert into t select i, 'unheard' from generate_series(20001, 21000) i")
        eventually(lambda: walsender(pipeline) not in (None, before), seconds=NOTICED_SECONDS, what="a new walsender")
        noticed = time.monotonic() - began
        streamed = pipeline.assert_captured()

        assert pipeline.capture is not None
        assert pipeline.capture.process.poll() is None
        log = (tmp_path / "capture0.log").read_text()

    assert streamed.generation == copied.generation
    assert "streams to us no longer" in log
    assert noticed < NOTICED_SECONDS


def test_a_silent_walsender_that_lives_is_left_alone(
    postgres: LocalPostgres, kafka: LocalKafka, tmp_path: Path
) -> None:
    """A pause of the server's process looks like a cut, and is none: to begin again would never end."""
    with Pipeline(f"t{secrets.token_hex(4)}", postgres, kafka, None, tmp_path) as pipeline:
        pipeline.sql(
            f"alter database {pipeline.name} set wal_sender_timeout = '1s'",
            "create table t (id bigint primary key, a text)",
        )
        pipeline.publish("t")
        pipeline.start_capture()
        pipeline.assert_captured()
        before = walsender(pipeline)
        assert before is not None

        with paused(before):
            time.sleep(4)
        log = (tmp_path / "capture0.log").read_text()
        pipeline.sql("insert into t values (1, 'after')")
        pipeline.assert_captured()

    assert "connection lost" not in log


def test_a_copy_that_was_cut_off_and_killed_holds_no_lock_when_the_next_capture_runs(
    postgres: LocalPostgres, kafka: LocalKafka, tmp_path: Path
) -> None:
    """Found with `make chaos SEED=301`: the server does not know that nobody reads the copy any more."""
    with (
        Proxy(postgres.port) as proxy,
        Pipeline(f"t{secrets.token_hex(4)}", postgres, kafka, None, tmp_path) as pipeline,
    ):
        pipeline.sql(
            f"alter database {pipeline.name} set wal_sender_timeout = '{TIMEOUT_SECONDS}s'",
            "create table t (id bigint primary key, a text)",
            "insert into t select i, repeat('long', 50) from generate_series(1, 20000) i",
        )
        pipeline.publish("t")
        pipeline.start_capture(
            PENSTOCK_SOURCE__DSN=make_conninfo(postgres.dsn(pipeline.name), port=proxy.port),
            PENSTOCK_CAPTURE__COPY_MAX_RATE="100kB",
        )
        copying = "select pid from pg_locks where relation = 't'::regclass and mode = 'AccessShareLock'"
        left = eventually(lambda: pipeline.source.execute(copying).fetchall(), what="a copy under way")

        proxy.cut()
        pipeline.kill_capture()
        stayed = pipeline.source.execute(copying).fetchall()
        pipeline.start_capture()
        eventually(lambda: not {*left} & {*pipeline.source.execute(copying)}, what="the lock to be given free")
        pipeline.sql("alter table t add b int")
        pipeline.assert_captured()

    assert stayed == left


@pytest.fixture
def database(postgres: LocalPostgres) -> Iterator[str]:
    """The DSN of one of its own."""
    name = f"t{secrets.token_hex(4)}"
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute(f"create database {name}")
        yield postgres.dsn(name)
        admin.execute(f"drop database {name} with (force)")


def test_a_destination_whose_answer_is_lost_is_given_up_and_the_next_apply_is_let_in(
    postgres: LocalPostgres, database: str
) -> None:
    with Proxy(postgres.port) as proxy:
        options = {"dsn": make_conninfo(database, port=proxy.port), "patience": "300ms"}
        destination = PostgresDestination(LAKE, options)
        destination.startup()
        destination.save_progress(a_progress(1))

        proxy.cut()
        with pytest.raises(DestinationAway, match="Unanswered"):
            destination.save_progress(a_progress(2))

        another = PostgresDestination(LAKE, options)
        stored = eventually(lambda: started(another), seconds=10, what="the lock to be free")
        another.shutdown()
        destination.shutdown()

    assert stored.lsn == 1


def started(destination: PostgresDestination) -> Progress | None:
    try:
        return destination.startup()
    except DestinationInUse:
        return None


def test_rows_that_a_cut_stops_on_their_way_are_given_up(postgres: LocalPostgres, database: str) -> None:
    with Proxy(postgres.port) as proxy:
        session = PatientSession.opened(make_conninfo(database, port=proxy.port), 0.3, autocommit=True)
        session.execute("create table t (a text)")

        with pytest.raises(psycopg.OperationalError):
            copy_rows(session, proxy.cut)

        assert session.closed


def copy_rows(session: psycopg.Connection, soon: Callable[[], None]) -> None:
    """So many that they fill every buffer."""
    with session.cursor().copy("copy t from stdin") as copy:
        copy.write(b"a row\n")
        soon()
        for _ in range(200):
            copy.write(b"x" * 100_000 + b"\n")


def test_a_statement_that_takes_long_is_waited_for(database: str) -> None:
    with PatientSession.opened(database, 0.2) as session:
        row = session.execute("select 'done' from pg_sleep(1.5)").fetchone()

    assert row == ("done",)


def test_an_apply_that_another_keeps_out_is_told_which_session_to_end(database: str) -> None:
    first, second = (PostgresDestination(LAKE, {"dsn": database}) for _ in range(2))
    first.startup()
    first.save_progress(a_progress(1))

    with pytest.raises(DestinationInUse) as refused:
        second.startup()
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(refused.value.solution.rpartition("end that: ")[2].encode())
        eventually(lambda: started(second), what="the second to start")

    first.shutdown()
    second.shutdown()


ASKING = """
import sys, threading
from types import SimpleNamespace

import psycopg
from pydantic import SecretStr

from capture.config import Failover, SourceConfig
from capture.errors import SourceUnreachable
from capture.link import LinkWatch
from capture.pulse import Pulse
from capture.replication_connection import ReplicationConnection, session_dsn

dsn, slot, seconds = sys.argv[1:]
with ReplicationConnection(dsn) as connection, psycopg.connect(session_dsn(dsn), autocommit=True) as session:
    start = connection.create_slot(slot, Failover.NONE, threading.Event(), lambda: None)
    connection.start(slot, SourceConfig(dsn=SecretStr(dsn), publication="none"), start)
    with Pulse(connection, SimpleNamespace(flushed=start), 0.5) as pulse:
        LinkWatch(connection, session, pulse, dsn, slot, float(seconds))
        print("asking", flush=True)
        try:
            pulse.during(lambda: session.execute("select pg_sleep(120)"))
        except SourceUnreachable as error:
            print(error.reason)
"""


def test_a_question_that_a_cut_leaves_unanswered_is_given_up(postgres: LocalPostgres) -> None:
    """It is asked while the stream waits for the answer; nothing but the stream's own silence can tell."""
    slot = f"t{secrets.token_hex(4)}"
    with Proxy(postgres.port) as proxy, psycopg.connect(postgres.dsn(), autocommit=True) as server:
        options = f"-c wal_sender_timeout={TIMEOUT_SECONDS}s"
        dsn = make_conninfo(postgres.dsn(), port=proxy.port, options=options)
        arguments = [sys.executable, "-c", ASKING, dsn, slot, str(TIMEOUT_SECONDS)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as asking:
            assert asking.stdout is not None
            try:
                assert asking.stdout.readline() == "asking\n"
                proxy.cut()
                told, _ = asking.communicate(timeout=NOTICED_SECONDS)
            finally:
                asking.kill()
        active = "select 1 from pg_replication_slots where slot_name = %s and active"
        eventually(lambda: server.execute(active, [slot]).fetchone() is None, what="the walsender to end")
        server.execute("select pg_drop_replication_slot(%s)", [slot])

    assert "streams to us no longer" in told


def test_a_watch_of_a_standby_that_answers_no_more_ends_at_once(postgres: LocalPostgres) -> None:
    """Or the next epoch would wait for its last look, and for TCP to give up."""
    told: list[int] = []
    with Proxy(postgres.port) as proxy:
        dsn = session_dsn(make_conninfo(postgres.dsn(), port=proxy.port), application_name="watched")
        with (
            psycopg.connect(postgres.dsn(), autocommit=True) as server,
            PromotionWatch(dsn, SlotName("nobodys"), 0, told.append),
        ):
            watching = "select 1 from pg_stat_activity where application_name = 'watched'"
            eventually(lambda: server.execute(watching).fetchone(), what="its session")
            proxy.cut()
            began = time.monotonic()
        ended = time.monotonic() - began

    assert ended < 5
    assert told == []


def test_lost_packets_end_a_session_in_bounded_time(postgres: LocalPostgres) -> None:
    with (
        closing(psycopg.connect(session_dsn(postgres.dsn()))) as session,
        socket.socket(fileno=os.dup(session.pgconn.socket)) as own,
    ):
        alive = own.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, every, count, unanswered = (
            own.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
        )

    assert alive
    assert idle + every * count <= 30
    assert 0 < unanswered <= 30_000
