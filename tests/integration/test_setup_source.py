"""Event triggers at the source: installed, used, removed; and no statement of anybody fails by them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner, Result

from capture.ddl import PREFIX
from capture.findings import Severity
from capture.pgoutput.decoder import decode
from capture.pgoutput.messages import LogicalMessage
from capture.preflight import connect
from capture.setup_source import Setup, ddl_findings, set_up
from console.cli import app
from console.local_stack.postgres import LocalPostgres
from tests.integration.test_doctor import config_for


class Source:
    """A database of its own, with a slot that keeps what the triggers write."""

    def __init__(self, server: LocalPostgres, folder: Path) -> None:
        self.name = f"t{secrets.token_hex(4)}"
        self._server = server
        self._file = folder / "penstock.toml"
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            admin.execute(f'create database "{self.name}"')
        self.dsn = server.dsn(self.name)
        self.session = psycopg.connect(self.dsn, autocommit=True)
        self.session.execute("create publication p")
        self.session.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [self.name])

    def close(self) -> None:
        self.session.execute("select pg_drop_replication_slot(%s)", [self.name])
        self.session.close()
        with psycopg.connect(self._server.dsn(), autocommit=True) as admin:
            admin.execute(f'drop database "{self.name}" with (force)')

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.session.execute(statement)

    def told(self) -> list[dict[str, Any]]:
        """What the triggers have written since the last time."""
        rows = self.session.execute(
            "select data from pg_logical_slot_get_binary_changes(%s, null, null, "
            "'proto_version', '1', 'publication_names', 'p', 'messages', 'true')",
            [self.name],
        ).fetchall()
        messages = [decode(memoryview(data)) for (data,) in rows]
        return [
            json.loads(message.content)
            for message in messages
            if isinstance(message, LogicalMessage) and message.prefix == PREFIX and message.transactional
        ]

    def penstock(self, *arguments: str, dsn: str | None = None) -> Result:
        self._file.write_text(
            f"""
            pipeline.name = "setup"
            source.dsn = "{dsn or self.dsn}"
            source.publication = "p"
            destinations.lake.type = "memory"
            """
        )
        return CliRunner().invoke(app(), ["setup-source", "-c", str(self._file), *arguments])


@pytest.fixture(scope="module")
def oldest() -> Iterator[LocalPostgres]:
    with LocalPostgres(14) as server:
        yield server


@pytest.fixture(params=["oldest", "postgres"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Source]:
    made = Source(request.getfixturevalue(request.param), tmp_path)
    yield made
    made.close()


def test_the_triggers_tell_what_was_altered_and_whether_it_was_rewritten(source: Source) -> None:
    assert source.penstock().stdout == f"event triggers installed in database {source.name}\n"
    assert source.penstock().exit_code == 0

    source.run(
        "create table t (id int primary key, a text)",
        "insert into t values (1, 'x')",
        "create temp table passing (id int)",
        "alter table passing add column a int",
        "alter table t add column n numeric(10, 2) not null default 1.5",
        "alter table t rename column a to b",
        "alter table t alter column b type text using upper(b)",
        "alter table t drop column b",
        "vacuum full t",
    )
    told = source.told()

    assert [(each["name"], each["rewritten"], each["dropped"]) for each in told] == [
        ("t", False, []),
        ("t", False, []),
        ("t", True, []),
        ("t", False, []),
        ("t", False, ["b"]),
        ("t", False, []),
    ]
    modifier = ((10 << 16) | 2) + 4
    assert told[0]["columns"][2] == {
        "number": 3,
        "name": "n",
        "type": 1700,
        "modifier": modifier,
        "not_null": True,
        "generated": False,
        "missing": "{1.50}",
    }
    assert (told[0]["schema"], told[0]["identity"], told[0]["key"]) == ("public", "d", [1])
    assert [(column["number"], column["name"]) for column in told[1]["columns"]] == [(1, "id"), (2, "b"), (3, "n")]


def test_partitions_and_heirs_are_told_with_those_they_belong_to(source: Source) -> None:
    source.penstock()
    source.run(
        "create table root (id int primary key, a text) partition by range (id)",
        "create table leaf partition of root for values from (0) to (100)",
        "create table parent (id int)",
        "create table heir () inherits (parent)",
    )
    source.told()

    source.run("alter table root alter column a type int using 1", "alter table parent add column b int")
    told = source.told()

    assert {each["name"] for each in told if each["rewritten"]} == {"root", "leaf"}
    assert {each["name"] for each in told} == {"root", "leaf", "parent", "heir"}


def test_an_altering_role_needs_no_rights_and_its_statement_never_fails(source: Source) -> None:
    source.penstock()
    role = f"r{secrets.token_hex(4)}"
    source.run(
        f"create role {role}",
        f"create schema mine authorization {role}",
        """do $$ declare emit regprocedure; begin
            for emit in select oid from pg_proc where proname = 'pg_logical_emit_message' loop
                execute format('revoke execute on function %s from public', emit);
            end loop;
        end $$""",
    )

    source.run(f"set role {role}", "create table mine.t (id int)", "alter table mine.t add column a int", "reset role")
    assert [each["name"] for each in source.told()] == ["t"]

    source.run("drop function penstock.tell_table(oid, boolean, text[])")
    warnings: list[str | None] = []
    source.session.add_notice_handler(lambda notice: warnings.append(notice.message_hint))
    source.run("alter table mine.t add column b int")

    assert warnings == ["Run `penstock resync` for the tables that were altered."]
    assert source.told() == []
    source.run("drop schema mine cascade", f"drop role {role}")


def test_names_of_any_kind_and_search_paths_of_anybody_are_no_trap(source: Source) -> None:
    source.penstock()
    source.run(
        'create schema "Ärger"',
        'create table "Ärger"."t ""x"" é" (id int, "a b" date default \'2000-01-31\')',
        "create schema trap",
        "create function trap.convert_to(text, text) returns bytea language sql as 'select ''trapped''::bytea'",
        "set search_path = trap, pg_catalog",
        "set datestyle = 'SQL, DMY'",
        'alter table "Ärger"."t ""x"" é" add column c date default \'2000-01-31\'',
    )

    (told,) = source.told()

    assert (told["schema"], told["name"]) == ("Ärger", 't "x" é')
    assert told["columns"][-1]["missing"] == "{2000-01-31}"


def test_what_was_installed_is_removed_and_what_else_lies_in_the_schema_stays(source: Source) -> None:
    source.penstock()
    with connect(config_for(source.dsn).source) as session:
        (installed,) = ddl_findings(session, config_for(source.dsn))

    assert source.penstock("--remove").stdout == f"event triggers removed from database {source.name}\n"
    assert source.penstock("--remove").exit_code == 0

    with connect(config_for(source.dsn).source) as session:
        (removed,) = ddl_findings(session, config_for(source.dsn))
    assert (installed.severity, installed.reason) == (Severity.OK, "Event triggers tell of DDL.")
    assert (removed.severity, removed.solution) == (
        Severity.OK,
        "If you want it otherwise, run `penstock setup-source`.",
    )
    assert source.session.execute("select from pg_namespace where nspname = 'penstock'").fetchone() is None
    source.penstock()
    source.run("create table penstock.mine (id int)")
    set_up(source.session, Setup.REMOVE)
    assert source.session.execute("select from penstock.mine").fetchall() == []


def test_a_role_that_may_not_is_told_what_a_dba_has_to_run(source: Source) -> None:
    role = f"r{secrets.token_hex(4)}"
    source.run(f"create role {role} login password 'word'", f'grant create on database "{source.name}" to {role}')
    dsn = psycopg.conninfo.make_conninfo(source.dsn, user=role, password="word")  # noqa: S106 -- of a server of tests

    refused = source.penstock(dsn=dsn)
    printed = source.penstock("--print")

    assert refused.exit_code == 1
    assert f"Role {role} may not change event triggers" in refused.stderr
    assert "penstock setup-source --print" in refused.stderr
    assert source.session.execute("select from pg_namespace where nspname = 'penstock'").fetchone() is None
    assert printed.stdout == Setup.INSTALL.script
    source.session.execute(printed.stdout.encode())
    source.run("create table t (id int)", "alter table t add column a int")
    assert [each["name"] for each in source.told()] == ["t"]
    source.run(f'revoke create on database "{source.name}" from {role}', f"drop role {role}")


def test_a_schema_of_somebody_else_who_could_replace_what_runs_is_refused(source: Source) -> None:
    role = f"r{secrets.token_hex(4)}"
    source.run(f"create role {role}", f"create schema penstock authorization {role}")

    refused = source.penstock()

    assert refused.exit_code == 1
    assert f"schema penstock belongs to {role}" in refused.stderr
    assert source.session.execute("select from pg_event_trigger").fetchall() == []
    source.run("alter schema penstock owner to current_user", f"drop role {role}")
    assert source.penstock().exit_code == 0
