"""A pipeline whose destination is another Postgres: what a client reads there is what it reads at the source."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import sql

from console.local_stack.postgres import LocalPostgres
from schemas.failpoints import VARIABLE
from tests.conftest import MakePipeline
from tests.contract.destination_places import PostgresPlace
from tests.support.pipeline import Pipeline

pytestmark = pytest.mark.further

TABLES = ("orders", "lines", "notes", "events")
SCHEMA = (
    "create type mood as enum ('good', 'bad')",
    """create table orders (
           id bigint primary key, "Größe ""x" numeric(12, 2), at timestamptz, tags text[], doc jsonb, feeling mood,
           raw bytea, f double precision, ips inet[], days daterange)""",
    "create table lines (order_id bigint, line int, note text, primary key (order_id, line))",
    "create table notes (id int primary key, big text, n int)",
    "alter table notes alter column big set storage external",
    "create table events (at timestamp, what text)",
    "alter table events replica identity full",
)
ROWS = (
    """insert into orders select i, i / 3.0, now() - i * interval '1 hour', array['a', null, 'b"' || i], '{"a": 1}',
           'good', decode(md5(i::text), 'hex'), 'NaN', '{10.0.0.1,::1}', '[2020-01-01,)' from generate_series(1, 500) i
    """,
    "insert into lines select i, j, 'line' from generate_series(1, 100) i, generate_series(1, 3) j",
    "insert into notes select i, repeat('long ', 2000), 0 from generate_series(1, 20) i",
    "insert into events select '-infinity', 'same' from generate_series(1, 10)",
)
CHANGES = (
    "update orders set doc = doc || '{\"b\": null}', at = 'infinity' where id % 5 = 0",
    "delete from orders where id % 7 = 0",
    "update orders set id = id + 1000 where id % 11 = 0",
    "update lines set line = line + 10 where order_id < 10",
    "update notes set n = n + 1",
    "update notes set id = id + 100 where id > 15",
    "insert into events values (null, null), ('2020-01-01', 'once')",
    "delete from events where ctid in (select ctid from events where what = 'same' limit 4)",
    "truncate lines",
    "insert into lines values (1, 1, ''), (1, 2, null)",
)
MASKED = """
            [destinations.lake.columns]
            "public.notes.big" = "hash"
"""


@pytest.fixture
def mirror(postgres: LocalPostgres) -> PostgresPlace:
    return PostgresPlace(postgres)


@pytest.fixture
def pipeline(make_pipeline: MakePipeline, mirror: PostgresPlace) -> Pipeline:
    made = make_pipeline(MASKED)
    duckdb = f'type = "duckdb"\n            path = "{made.lake_path}"'
    text = made.file.read_text()
    assert duckdb in text
    made.file.write_text(text.replace(duckdb, f'type = "postgres"\n            dsn = "{mirror.dsn}"'))
    made.sql(*SCHEMA, *ROWS)
    made.publish()
    return made


def contents(session: psycopg.Connection[Any], table: str) -> list[str]:
    """Every row as its text, which tells one value from another and knows no order."""
    session.execute("set timezone = 'UTC'")
    query = sql.SQL("select t::text from {} t order by 1").format(sql.Identifier("public", table))
    return [text for (text,) in session.execute(query).fetchall()]


def shown(source: psycopg.Connection[Any], table: str) -> list[str]:
    """What the destination is to have of a table."""
    if table != "notes":
        return contents(source, table)
    query = "select (id, encode(sha256(convert_to(big, 'UTF8')), 'hex'), n)::text from notes order by 1"
    return [text for (text,) in source.execute(query).fetchall()]


def assert_equal(pipeline: Pipeline, mirror: PostgresPlace) -> None:
    pipeline.settle(*TABLES)
    with psycopg.connect(mirror.dsn) as there:
        for table in TABLES:
            assert contents(there, table) == shown(pipeline.source, table), table


def test_copies_and_all_kinds_of_changes_arrive_exactly(pipeline: Pipeline, mirror: PostgresPlace) -> None:
    pipeline.start()
    assert_equal(pipeline, mirror)

    pipeline.sql(*CHANGES)

    assert_equal(pipeline, mirror)


def test_killing_apply_in_the_middle_of_a_transaction_loses_and_repeats_nothing(
    pipeline: Pipeline, mirror: PostgresPlace
) -> None:
    pipeline.start()
    assert_equal(pipeline, mirror)
    pipeline.stop_apply()
    pipeline.sql(*CHANGES)

    pipeline.start_apply_process(**{VARIABLE: "postgres.merged=kill"})
    pipeline.wait_for_death_of_apply()
    pipeline.start_apply_process(**{VARIABLE: "apply.committed=kill"})
    pipeline.wait_for_death_of_apply()
    pipeline.start_apply()

    assert_equal(pipeline, mirror)
