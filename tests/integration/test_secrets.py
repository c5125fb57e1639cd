"""Passwords, keys and salts are used, and nowhere to be seen: in no log, list of processes, answer or file."""

from __future__ import annotations

import os
import secrets
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from tests.contract.destination_places import PostgresPlace
from tests.integration.test_bad_input import assert_refused, changed
from tests.support.command import penstock
from tests.support.eventually import eventually
from tests.support.granted import PASSWORD, granted
from tests.support.pipeline import Pipeline
from tests.support.processes import descendants

IN_THE_FILE = ("s3cr3t-source", "s3cr3t-kafka", "s3cr3t-spark", "s3cr3t-destination")
SOURCE, KAFKA, SPARK, DESTINATION = IN_THE_FILE
SALT = "s3cr3t-salt"
"""In a variable."""
SALT_VARIABLE = "PENSTOCK_DESTINATIONS__LAKE__SALT"


class Seen(NamedTuple):
    """A process, as a user of the host sees it: its name and arguments; and its environment, which is its user's."""

    name: str
    arguments: bytes
    environment: bytes


class Source:
    """A database with a table, and a mirror in another one; each has a role with its rights and a password."""

    def __init__(self, postgres: LocalPostgres) -> None:
        self.name = f"s{secrets.token_hex(4)}"
        self.mirror = PostgresPlace(postgres)
        self._admin = postgres.dsn()
        with psycopg.connect(self._admin, autocommit=True) as admin:
            admin.execute(sql.SQL("create database {}").format(sql.Identifier(self.name)))
        self.owner = postgres.dsn(self.name)
        self.run(self.owner, "create table orders (id int primary key, note text)", "create table items (id int)")
        names = {"penstock": f"{self.name}_r", "shop": self.name, "shop_pub": self.name, PASSWORD: SOURCE}
        self.run(self.owner, *granted("The source", **names), "insert into orders values (1, 'copied')")
        lake = str(psycopg.conninfo.conninfo_to_dict(self.mirror.dsn)["dbname"])
        names = {"penstock_apply": f"{self.name}_a", "warehouse": lake, PASSWORD: DESTINATION}
        self.run(self.mirror.dsn, *granted("A Postgres destination", **names))

    @property
    def dsn(self) -> str:
        return make_conninfo(self.owner, user=f"{self.name}_r", password=SOURCE)

    @property
    def mirror_dsn(self) -> str:
        return make_conninfo(self.mirror.dsn, user=f"{self.name}_a", password=DESTINATION)

    def run(self, dsn: str, *statements: str) -> None:
        with psycopg.connect(dsn, autocommit=True) as session:
            for statement in statements:
                session.execute(statement.encode())

    def mirrored(self) -> int:
        with suppress(psycopg.errors.UndefinedTable):
            ((count,),) = self.mirror.query(sql.SQL("select count(*) from public.orders"))
            return int(count)
        return 0

    def statements(self) -> str:
        """What the servers' other users see of our sessions."""
        with psycopg.connect(self._admin) as admin:
            rows = admin.execute("select application_name, query from pg_stat_activity").fetchall()
        return str(rows)

    def drop(self) -> None:
        with psycopg.connect(self._admin, autocommit=True) as admin:
            slot = [f"penstock_{self.name}"]
            free = "select from pg_replication_slots where slot_name = %s and not active"
            eventually(lambda: admin.execute(free, slot).rowcount, what="the walsender to end")
            admin.execute("select pg_drop_replication_slot(%s)", slot)
            admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(self.name)))
        self.run(self.mirror.dsn, f"drop owned by {self.name}_a", f"drop role {self.name}_a, {self.name}_r")


@pytest.fixture
def source(postgres: LocalPostgres) -> Iterator[Source]:
    made = Source(postgres)
    yield made
    made.drop()


@pytest.fixture
def file(source: Source, kafka: LocalKafka, tmp_path: Path) -> Path:
    path = tmp_path / "penstock.toml"
    path.write_text(
        f"""
        [pipeline]
        name = "{source.name}"
        [source]
        dsn = "{source.dsn}"
        publication = "{source.name}"
        [kafka]
        bootstrap_servers = "{kafka.bootstrap_servers}"
        [kafka.client]
        "sasl.username" = "shop"
        "sasl.password" = "{KAFKA}"
        [apply.spark]
        "spark.hadoop.fs.s3a.secret.key" = "{SPARK}"
        [destinations.lake]
        type = "postgres"
        dsn = "{source.mirror_dsn}"
        [destinations.lake.columns]
        "public.orders.note" = "hash"
        """
    )
    return path


@contextmanager
def running(file: Path, log: Path) -> Iterator[int]:
    """`penstock run`, with its salt from a variable; its process id."""
    environment = {**os.environ, "PENSTOCK_LOG_FORMAT": "json", SALT_VARIABLE: SALT}
    command = [sys.executable, "-m", "console", "run", "-c", str(file)]
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, env=environment) as process:
        try:
            yield process.pid
        finally:
            process.terminate()
            assert process.wait(90) == 0, log.read_text()[-4000:]


def seen(pid: int) -> list[Seen]:
    found = []
    for each in (pid, *descendants(pid)):
        place = Path(f"/proc/{each}")
        with suppress(FileNotFoundError, ProcessLookupError):
            name = (place / "comm").read_text().strip()
            found.append(Seen(name, (place / "cmdline").read_bytes(), (place / "environ").read_bytes()))
    return found


def leaked(text: str | bytes, *words: str) -> list[str]:
    text = text if isinstance(text, bytes) else text.encode()
    return [word for word in words if word.encode() in text]


@pytest.mark.further
def test_no_secret_is_to_be_seen_while_a_pipeline_runs_or_after(source: Source, file: Path, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    with running(file, log) as pid:
        eventually(lambda: source.mirrored() == 1, seconds=120, what="the copied row")
        source.run(source.owner, "insert into orders values (2, 'streamed')")
        eventually(lambda: source.mirrored() == 2, what="the streamed row")
        processes, statements = seen(pid), source.statements()
        answers = [penstock(*verb, "-c", str(file)) for verb in (["status"], ["status", "--json"], ["doctor"])]

    assert {"java", "penstock-copy"} <= {each.name for each in processes}
    for each in processes:
        assert leaked(each.arguments, *IN_THE_FILE, SALT) == [], each.name
        assert leaked(each.environment, *IN_THE_FILE) == [], each.name
        assert each.name != "java" or leaked(each.environment, SALT) == []
    assert leaked(statements, *IN_THE_FILE, SALT) == []
    for answer in answers:
        assert answer.returncode == 0, answer.stderr
        assert leaked(answer.stdout + answer.stderr, *IN_THE_FILE, SALT) == []
    assert "holds a secret, and other users of this host may read it" in answers[-1].stdout
    assert leaked(log.read_text(), *IN_THE_FILE, SALT) == []
    files = [each for each in tmp_path.rglob("*") if each.is_file() and each not in (file, log)]
    assert files, "capture's store"
    for each in files:
        assert leaked(each.read_bytes(), *IN_THE_FILE, SALT) == [], each
        assert stat.S_IMODE(each.stat().st_mode) == 0o600, each
    assert stat.S_IMODE((tmp_path / ".penstock").stat().st_mode) == 0o700


def test_a_wrong_password_of_a_destination_is_told_and_not_repeated(
    postgres: LocalPostgres, kafka: LocalKafka, tmp_path: Path
) -> None:
    with Pipeline(f"t{secrets.token_hex(4)}", postgres, kafka, None, tmp_path) as pipeline:
        dsn = make_conninfo(pipeline.source.info.dsn, password=DESTINATION)
        duckdb = f'type = "duckdb"\n            path = "{pipeline.lake_path}"'
        file = changed(pipeline, duckdb, f'type = "postgres"\n            dsn = "{dsn}"')

        done = penstock("apply", "-c", file)

    assert_refused(done, "password authentication failed", "Correct user and password")
    assert leaked(done.stdout + done.stderr, DESTINATION) == []
