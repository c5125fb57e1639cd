"""A network that is cut without a word: capture notices within a bounded time, and goes on exactly."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from capture.promotion import PromotionWatch
from capture.replication_connection import session_dsn
from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from schemas.identifiers import SlotName
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline
from tests.support.proxy import Proxy

TIMEOUT_SECONDS = 2
NOTICED_SECONDS = 25


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
    pulse = Pulse(connection, SimpleNamespace(flushed=start), 0.5)
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
