"""Real servers: they start, keep their data over a restart, and leave nothing behind, whatever happens to us."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import console
from console.local_stack import kafka as kafka_module
from console.local_stack import postgres as postgres_module
from console.local_stack.docker import engine_answers
from console.local_stack.environment import StackKind
from console.local_stack.errors import CannotRunAsRoot, ServerDidNotStart
from console.local_stack.jars import postgres_jar
from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres, StopMode
from console.local_stack.processes import free_port
from console.local_stack.stack import local_stack
from console.local_stack.unprivileged import readable_cache
from tests.support.eventually import eventually
from tests.support.processes import alive

REPOSITORY = Path(console.__file__).parents[1]
AS_ROOT = os.geteuid() == 0


def processes_of(directory: Path) -> list[int]:
    """Every process that has the folder in its command line or as its working folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_text()
            working = str((entry / "cwd").readlink())
        except OSError:
            continue
        if str(directory) in command or str(directory) in working:
            found.append(int(entry.name))
    return found


def query(dsn: str, text: str) -> list[tuple[object, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(text.encode())
        return cursor.fetchall() if cursor.description else []


def create_topic(bootstrap_servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    config = {"max.message.bytes": str(68 * 1024**2)}
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(timeout=20)


def produce(bootstrap_servers: str, topic: str, *values: bytes) -> None:
    settings: dict[str, str | int | bool] = {
        "bootstrap.servers": bootstrap_servers,
        "enable.idempotence": True,
        "message.max.bytes": 68 * 1024**2,
        "log_level": 0,
    }
    producer = Producer(settings)
    failures: list[object] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(30) == 0
    assert not failures


def consume(bootstrap_servers: str, topic: str, count: int) -> list[bytes | None]:
    settings: dict[str, str | int | bool] = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "reader",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])  # without a group, whose making takes a second
        return [message.value() for message in consumer.consume(count, timeout=30)]
    finally:
        consumer.close()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder which every user can reach; pytest's own are closed, and Postgres refuses root."""
    with tempfile.TemporaryDirectory(prefix="penstock-tests-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_postgres_leaves_no_process_and_no_folder() -> None:
    with LocalPostgres() as postgres:
        directory, pid = postgres.directory, postgres.pid
        assert query(postgres.dsn(), "show wal_level") == [("logical",)]
        assert query(postgres.dsn(), "select distinct datctype from pg_database") == [("C.UTF-8",)]
        assert len(processes_of(directory)) > 1

    assert not alive(pid)
    assert processes_of(directory) == []
    assert not directory.exists()


def test_kafka_leaves_no_process_and_no_folder() -> None:
    with LocalKafka() as kafka:
        directory, pid = kafka.directory, kafka.pid
        assert "auto.create.topics.enable=false" in (directory / "server.properties").read_text()

    assert not alive(pid)
    assert processes_of(directory) == []
    assert not directory.exists()


@pytest.mark.parametrize("version", [14, 15, 16, 17, 18])
def test_every_postgres_version_starts_and_streams_pgoutput(version: int) -> None:
    with LocalPostgres(version) as postgres:
        query(postgres.dsn(), "create table orders (id int primary key)")
        query(postgres.dsn(), "create publication shop for all tables")
        query(postgres.dsn(), "select pg_create_logical_replication_slot('shop', 'pgoutput')")

        query(postgres.dsn(), "insert into orders values (1)")

        ((said,),) = query(postgres.dsn(), "select version()")
        changes = query(
            postgres.dsn(),
            "select data from pg_logical_slot_get_binary_changes"
            "('shop', null, null, 'proto_version', '1', 'publication_names', 'shop')",
        )
        assert str(said).startswith(f"PostgreSQL {version}.")
        assert [bytes(data)[:1] for (data,) in changes if isinstance(data, bytes)] == [b"B", b"R", b"I", b"C"]


@pytest.mark.parametrize("end", ["fast", "immediate", "kill"])
def test_postgres_keeps_data_and_port_over_a_restart(end: str) -> None:
    with LocalPostgres() as postgres:
        port = postgres.port
        query(postgres.dsn(), "create table orders as select generate_series(1, 1000) as id")
        stop: dict[str, Callable[[], None]] = {
            "fast": postgres.stop,
            "immediate": lambda: postgres.stop(StopMode.IMMEDIATE),
            "kill": postgres.kill,
        }

        with psycopg.connect(postgres.dsn()):  # an open session must not stop it from stopping
            stop[end]()
        assert processes_of(postgres.directory) == []
        postgres.start()

        assert postgres.port == port
        assert query(postgres.dsn(), "select count(*) from orders") == [(1000,)]


def test_a_killed_postgres_leaves_no_shared_memory_in_the_kernel() -> None:
    with LocalPostgres() as postgres:
        pid = postgres.pid
        postgres.kill()

        creators = [line.split()[4] for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
        assert str(pid) not in creators


def test_kafka_keeps_records_and_port_over_a_stop_and_a_kill() -> None:
    with LocalKafka() as kafka:
        servers = kafka.bootstrap_servers
        create_topic(servers, "orders")
        produce(servers, "orders", b"one")

        kafka.stop()
        kafka.start()
        produce(servers, "orders", b"two")
        kafka.kill()
        kafka.start()

        assert kafka.bootstrap_servers == servers
        assert consume(servers, "orders", 2) == [b"one", b"two"]


def test_kafka_takes_a_record_of_64_mebibytes() -> None:
    with LocalKafka() as kafka:
        create_topic(kafka.bootstrap_servers, "large")

        produce(kafka.bootstrap_servers, "large", bytes(64 * 1024**2))

        (value,) = consume(kafka.bootstrap_servers, "large", 1)
        assert value is not None
        assert len(value) == 64 * 1024**2


def test_two_servers_of_a_kind_run_side_by_side_and_know_nothing_of_each_other() -> None:
    servers = [LocalPostgres(), LocalPostgres(), LocalKafka(), LocalKafka()]
    with ExitStack() as running, ThreadPoolExecutor(len(servers)) as pool:
        list(pool.map(running.enter_context, servers))
        one, other = (server for server in servers if isinstance(server, LocalPostgres))
        broker, other_broker = (server for server in servers if isinstance(server, LocalKafka))

        query(one.dsn(), "create table orders ()")
        create_topic(broker.bootstrap_servers, "orders")

        assert query(other.dsn(), "select to_regclass('orders')") == [(None,)]
        assert "orders" not in AdminClient({"bootstrap.servers": other_broker.bootstrap_servers}).list_topics().topics
        ids = {kafka_module.asked_cluster_id(kafka.bootstrap_servers) for kafka in (broker, other_broker)}
        assert len(ids) == 2


def test_a_given_folder_keeps_the_data_for_the_next_owner(open_folder: Path) -> None:
    with LocalPostgres(data_dir=open_folder / "postgres") as postgres:
        query(postgres.dsn(), "create table orders as select 1 as id")
        assert query(postgres.dsn(), "show fsync") == [("on",)]

        port = postgres.port

    with LocalPostgres(data_dir=open_folder / "postgres") as postgres:
        assert query(postgres.dsn(), "select id from orders") == [(1,)]
        assert postgres.port == port


def test_a_kept_broker_moves_to_another_port_when_its_own_is_taken(tmp_path: Path) -> None:
    with LocalKafka(tmp_path / "kafka") as kafka:
        port = kafka.port
        create_topic(kafka.bootstrap_servers, "orders")
        produce(kafka.bootstrap_servers, "orders", b"one")

    with socket.create_server(("127.0.0.1", port)), LocalKafka(tmp_path / "kafka") as kafka:
        assert kafka.port != port
        assert consume(kafka.bootstrap_servers, "orders", 1) == [b"one"]


def test_a_port_that_was_taken_in_the_meantime_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as thief:
        stolen = thief.getsockname()[1]
        offers = iter([stolen])
        monkeypatch.setattr(postgres_module, "free_port", lambda: next(offers, None) or free_port())

        with LocalPostgres() as postgres:
            assert postgres.port != stolen
            assert query(postgres.dsn(), "select 1") == [(1,)]


def test_a_server_that_cannot_start_says_why_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", tempfile.mkdtemp(prefix="penstock-tests-"))
    Path(os.environ["TMPDIR"]).chmod(0o755)

    with pytest.raises(ServerDidNotStart, match="no_such_setting"):
        LocalPostgres(settings={"no_such_setting": "1"}).start()

    assert list(Path(os.environ["TMPDIR"]).iterdir()) == []
    Path(os.environ["TMPDIR"]).rmdir()


@pytest.mark.skipif(not AS_ROOT, reason="an ordinary user runs Postgres as itself")
def test_a_folder_that_the_servers_user_cannot_reach_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(CannotRunAsRoot, match="cannot pass through") as refused:
        LocalPostgres(data_dir=tmp_path / "postgres").start()

    assert "chmod o+x" in refused.value.solution


@pytest.mark.parametrize("forks", ["no fork", "a fork holds the pipe"])
def test_killing_the_owner_leaves_no_process_and_no_folder(forks: str) -> None:
    script = """
import json, os, sys, time
from console.local_stack.environment import StackKind
from console.local_stack.processes import free_port
from console.local_stack.stack import local_stack
with local_stack(kind=StackKind.NATIVE) as stack:
    forked = os.fork() if sys.argv[1] != "no fork" else 0
    if forked or sys.argv[1] == "no fork":
        servers = [stack.postgres, stack.kafka]
        facts = [[server.pid for server in servers], [str(server.directory) for server in servers], forked]
        print("facts", json.dumps(facts), flush=True)
    time.sleep(1000)
"""
    with subprocess.Popen([sys.executable, "-c", script, forks], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        line = next(line for line in owner.stdout if line.startswith("facts "))
        pids, directories, forked = json.loads(line.removeprefix("facts "))
        assert all(alive(pid) for pid in pids)
        assert all(Path(directory).exists() for directory in directories)

        owner.kill()
        owner.wait()
        try:
            eventually(lambda: not any(Path(directory).exists() for directory in directories))
        finally:
            if forked:
                os.kill(forked, signal.SIGKILL)

    assert not any(alive(pid) for pid in pids)
    assert not any(processes_of(Path(directory)) for directory in directories)


@pytest.mark.skipif(not AS_ROOT, reason="the tests already run as an ordinary user")
def test_an_ordinary_user_runs_postgres_as_itself(open_folder: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    python = readable_python(nobody.pw_uid)
    jar = postgres_jar(17)
    with LocalPostgres(17):
        pass  # the cache is warm now, wherever root keeps it
    cache = open_folder / "cache" / "penstock"
    (cache / "jars" / jar.parent.name).mkdir(parents=True)
    shutil.copy(jar, cache / "jars" / jar.parent.name)
    (cache / "postgres").mkdir()
    (cache / "postgres" / jar.stem).symlink_to(readable_cache() / "postgres" / jar.stem)
    for path in [open_folder / "cache", *(open_folder / "cache").rglob("*")]:
        os.chown(path, nobody.pw_uid, nobody.pw_gid, follow_symlinks=False)
    script = """
import os, psycopg
from console.local_stack.postgres import LocalPostgres
with LocalPostgres(17) as postgres:
    with psycopg.connect(postgres.dsn()) as connection:
        print(connection.execute("select 1").fetchone(), os.stat(f"/proc/{postgres.pid}").st_uid, os.getuid())
"""

    done = subprocess.run(
        [python, "-c", script],
        user=nobody.pw_uid,
        group=nobody.pw_gid,
        extra_groups=[],
        cwd=open_folder,
        env={
            "XDG_CACHE_HOME": str(open_folder / "cache"),
            "HOME": str(open_folder),
            "PATH": os.defpath,
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(Path(psycopg.__file__).parents[1])]),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout.endswith(f"(1,) {nobody.pw_uid} {nobody.pw_uid}\n"), done.stderr


def readable_python(uid: int) -> str:
    """A Python of our version that the user may run; root's own may lie behind a closed home."""
    names = [sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"]
    for name in names:
        try:
            subprocess.run([name, "-c", ""], user=uid, check=True, stderr=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError):
            continue
        return name
    pytest.skip(f"no Python that an ordinary user may run: {names}")


def test_the_stack_runs_in_docker() -> None:
    if not engine_answers():
        pytest.skip("no docker engine answers on this machine")

    with local_stack(kind=StackKind.DOCKER) as stack:
        assert query(stack.postgres.dsn(), "show wal_level") == [("logical",)]
        create_topic(stack.kafka.bootstrap_servers, "orders")
        produce(stack.kafka.bootstrap_servers, "orders", b"one")
        assert consume(stack.kafka.bootstrap_servers, "orders", 1) == [b"one"]
