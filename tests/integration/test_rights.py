"""A role that has exactly the rights of docs/how-to/grant-rights.md: it can do all that capture must, and each of them
is needed and named where it is missing."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from capture.findings import Finding, Severity
from capture.preflight import source_findings
from console.config import load
from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from tests.support.command import penstock
from tests.support.eventually import eventually
from tests.support.granted import PASSWORD, granted
from tests.support.pipeline import Pipeline

DSN = "PENSTOCK_SOURCE__DSN"


@pytest.fixture
def role() -> str:
    return f"r{secrets.token_hex(4)}"


@pytest.fixture
def pipeline(postgres: LocalPostgres, kafka: LocalKafka, tmp_path: Path, role: str) -> Iterator[Pipeline]:
    """Two tables in a database that lets nobody in."""
    name = f"t{secrets.token_hex(4)}"
    with Pipeline(name, postgres, kafka, None, tmp_path) as made:
        made.sql(
            "create table orders (id int primary key, note text)",
            "create table items (id int primary key)",
            "insert into orders select i, md5(i::text) from generate_series(1, 500) i",
            f"revoke all on database {name} from public",
            "revoke all on schema public from public",
            *granted("The source", penstock=role, shop=name, shop_pub=name),
        )
        yield made
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))


@pytest.fixture
def dsn(postgres: LocalPostgres, pipeline: Pipeline, role: str) -> str:
    return make_conninfo(postgres.dsn(pipeline.name), user=role, password=PASSWORD)


def test_it_copies_and_streams_and_a_right_that_goes_meanwhile_is_named(
    pipeline: Pipeline, role: str, dsn: str
) -> None:
    pipeline.start_capture(**{DSN: dsn})
    copied = pipeline.assert_captured("orders")
    pipeline.sql(
        "insert into orders select i, 'streamed' from generate_series(501, 600) i",
        "update orders set note = null where id % 3 = 0",
        "delete from orders where id % 7 = 0",
    )
    streamed = pipeline.assert_captured("orders")
    assert streamed.generation == copied.generation, "the changes came by the stream"

    pipeline.sql(f"revoke select on orders from {role}")
    assert penstock("resync", "public.orders", "-c", str(pipeline.file)).returncode == 0
    eventually(lambda: "permission denied for table orders" in pipeline.capture_log(), what="the reason")
    assert "`grant select on TABLE to ROLE;`" in pipeline.capture_log()
    pipeline.sql(f"grant select on orders to {role}")

    eventually(lambda: pipeline.assert_captured("orders").generation > copied.generation, what="the new copy")
    assert PASSWORD not in pipeline.capture_log()


def test_each_right_is_needed_and_told_by_the_statement_that_gives_it(pipeline: Pipeline, role: str, dsn: str) -> None:
    assert problem(pipeline, dsn) is None

    for taken, given in (
        (f"alter role {role} nologin", f'alter role "{role}" login;'),
        (f"alter role {role} noreplication", f'alter role "{role}" replication;'),
        (f"revoke connect on database {pipeline.name} from {role}", f'grant connect on database "{pipeline.name}" to'),
        (f"revoke usage on schema public from {role}", f'grant usage on schema "public" to "{role}";'),
        (f"revoke select on items from {role}", f'grant select on "public"."items" to "{role}";'),
    ):
        pipeline.sql(taken)
        found = problem(pipeline, dsn)
        assert found is not None, taken
        assert given in found.solution
        statement = re.search(r"`([^`]+;)`", found.solution)
        assert statement is not None
        pipeline.sql(statement[1])
        assert problem(pipeline, dsn) is None, statement[1]


def problem(pipeline: Pipeline, dsn: str) -> Finding | None:
    """The first that would end capture."""
    config = load(pipeline.file, {DSN: dsn}).capture_config()
    return next((each for each in source_findings(config) if each.severity is Severity.PROBLEM), None)
