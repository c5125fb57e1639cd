"""A destination that shows some tables, under other names, and not all of their values, from the source to the end."""

from __future__ import annotations

import hmac
from typing import Any

from capture.setup_source import Setup, set_up
from console.control import send_command
from console.waiting import Held
from schemas.control import Resync, Rollback
from schemas.identifiers import TableName
from schemas.phases import Errored
from tests.conftest import MakePipeline
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline

SALT = "s3cr3t"
SHOWN = f"""
            tables = ["public.*", "!public.audit"]
            salt = "{SALT}"
            [destinations.lake.rename]
            "public" = "shop"
            "public.orders" = "shop.sales"
            [destinations.lake.columns]
            "*.*.email" = "hash"
            "public.people.phone" = "null"
            "public.people.ssn" = "drop"
            "public.visits.who" = "drop"
"""
MAIL = '"public.people.mail" = "hash"'
PEOPLE = "select id, email, null, note, big from people order by id"


def restarted(pipeline: Pipeline, *lines: str) -> None:
    """Apply, with another file: each line, and what stands there now."""
    text = pipeline.file.read_text()
    for before, after in zip(lines[::2], lines[1::2], strict=True):
        assert before in text
        text = text.replace(before, after)
    pipeline.file.write_text(text)
    pipeline.stop_apply()
    pipeline.start_apply()


def rolled_back(pipeline: Pipeline, table: str) -> None:
    send_command(pipeline.config(), Rollback(TableName("public", table)))
    eventually(lambda: pipeline.known_phase(table) == "Ready", what="the table to go on")


def hashed(text: str | None) -> str | None:
    return None if text is None else hmac.new(SALT.encode(), text.encode(), "sha256").hexdigest()


def assert_people(pipeline: Pipeline, query: str = PEOPLE) -> None:
    pipeline.settle("people")
    rows = [(row[0], hashed(row[1]), *row[2:]) for row in pipeline.source.execute(query).fetchall()]
    assert pipeline.lake("select * from shop.people order by id") == rows


def held(pipeline: Pipeline, table: str) -> Errored | None:
    report = pipeline.report(table)
    return report.phase if report is not None and isinstance(report.phase, Errored) else None


def sorted_rows(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def test_what_is_shown_stays_right_over_changes_new_shapes_copies_restarts_and_another_selection(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(SHOWN)
    set_up(pipeline.source, Setup.INSTALL)
    pipeline.sql(
        "create table people (id int primary key, email text, phone int, ssn text, note text, big text)",
        "alter table people alter column big set storage external, alter column ssn set storage external",
        "create table orders (id int primary key, n int)",
        "create table visits (who text, place text)",
        "alter table visits replica identity full",
        "create table audit (id int primary key)",
        "insert into people select i, 'p' || i || '@x', i, repeat('9', 3000), 'n', repeat('long ', 1000)"
        "  from generate_series(1, 50) i",
        "insert into orders select i, i from generate_series(1, 20) i",
        "insert into visits select 'p' || i, 'here' from generate_series(1, 5) i",
        "insert into audit select generate_series(1, 7)",
    )
    pipeline.publish()
    pipeline.start()
    assert_people(pipeline)

    pipeline.sql(
        "update people set note = 'changed' where id % 2 = 0",
        "update people set id = id + 100, email = null where id % 5 = 0",
        "delete from people where id % 7 = 0",
        "update people set ssn = 'short', big = 'short' where id % 3 = 0",
        "delete from visits where who in ('p1', 'p2')",
        "update visits set who = 'nobody'",
        "insert into audit values (8)",
        "update orders set n = n + 1",
        "alter table people add column late_email text default 'late@x'",
    )
    pipeline.settle("people")
    restarted(pipeline, '"*.*.email" = "hash"', '"*.*.email" = "hash"\n"*.*.late_email" = "drop"')
    pipeline.sql("update people set note = 'filled anew' where id = 1")
    assert_people(pipeline)
    pipeline.settle("people", "orders", "visits")
    assert sorted_rows(pipeline.lake("select * from shop.sales")) == sorted_rows(
        pipeline.source.execute("select * from orders").fetchall()
    )
    assert pipeline.lake("select * from shop.visits") == [("here",)] * 3
    assert pipeline.lake("select distinct table_schema from information_schema.tables order by 1") == [
        ("penstock",),
        ("shop",),
    ]
    assert pipeline.report("audit") is None
    released = pipeline.wal_lsn()
    eventually(lambda: pipeline.confirmed_lsn() >= released, what="WAL to be released")

    # A name that no rule speaks of: nothing comes to light, neither by the stream nor by a new copy.
    pipeline.sql("alter table people rename email to mail", "update people set note = 'after the rename'")
    phase = eventually(lambda: held(pipeline, "people"), what="the table to be held")
    assert "public.people.email" in phase.reason
    assert '"public.people.mail"' in phase.solution
    before = pipeline.generation("people")
    send_command(pipeline.config(), Resync(TableName("public", "people")))
    eventually(lambda: pipeline.generation("people") > before and held(pipeline, "people"), what="the copy to be held")
    columns = "select column_name from (describe shop.people)"
    assert [name for (name,) in pipeline.lake(columns)] == ["id", "email", "phone", "note", "big"]

    restarted(pipeline, '"*.*.email" = "hash"', f'"*.*.email" = "hash"\n{MAIL}')
    rolled_back(pipeline, "people")
    assert_people(pipeline, PEOPLE.replace("email", "mail"))

    # Another selection: one table leaves and stays as it is, another joins and is filled from its copy on the topics.
    restarted(pipeline, '"!public.audit"', '"!public.visits"')
    pipeline.sql("insert into audit values (9)", "insert into visits values ('late', 'there')")
    pipeline.settle("people", "orders", "audit")
    assert sorted_rows(pipeline.lake("select * from shop.audit")) == [(n,) for n in range(1, 10)]
    assert pipeline.report("visits") is None
    assert pipeline.lake("select * from shop.visits") == [("here",)] * 3

    # Another name of the table takes its rules away: it is not shown at all.
    pipeline.sql("alter table people rename to persons")
    phase = eventually(lambda: held(pipeline, "persons"), what="the renamed table to be held")
    assert "public.people." in phase.reason
    assert pipeline.lake("select table_name from information_schema.tables where table_name = 'persons'") == []


POLICIES = """
            on_new_shape = "freeze"
            [destinations.lake.on_new_shape_of]
            "public.loose" = "ignore"
"""


def test_a_frozen_table_waits_at_a_new_shape_and_one_that_ignores_it_goes_on_in_its_own(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(POLICIES)
    set_up(pipeline.source, Setup.INSTALL)
    for table in ("frozen", "loose"):
        pipeline.sql(
            f"create table {table} (id int primary key, a text, b int, big text)",
            f"alter table {table} alter column big set storage external",
            f"insert into {table} select i, 'a', i, repeat('long', 1000) from generate_series(1, 10) i",
        )
    pipeline.publish()
    pipeline.start()
    pipeline.assert_equal("frozen", "loose")

    for table in ("frozen", "loose"):
        with pipeline.source.transaction():
            pipeline.sql(
                f"alter table {table} add column c int default 7, drop column b",
                f"alter table {table} rename a to z",
                f"alter table {table} rename big to large",
                f"update {table} set z = 'changed' where id <= 5",
                f"insert into {table} values (11, 'new', 'short', 8)",
            )
    phase = eventually(lambda: held(pipeline, "frozen"), what="the frozen table to be held")
    pipeline.settle("loose", held=Held.PASSED_OVER)

    assert "a, b, big went" in phase.reason
    assert "rollback" in phase.solution
    large = "left(big, 4)"
    seen = [(i, "changed", None, "long") for i in range(1, 6)] + [(i, "a", i, "long") for i in range(6, 11)]
    loose = f"select id, a, b, {large} from public.loose order by id"
    assert pipeline.lake(loose) == [*seen, (11, "new", None, "shor")]
    assert pipeline.lake("select count(*), sum(b) from public.frozen") == [(10, 55)]

    generation = pipeline.generation("loose")
    send_command(pipeline.config(), Resync(TableName("public", "loose")))
    eventually(lambda: pipeline.generation("loose") > generation, what="the new copy")
    pipeline.settle("loose", held=Held.PASSED_OVER)
    assert [(row[0], row[2]) for row in pipeline.lake(loose)] == [(i, None) for i in range(1, 12)]

    restarted(pipeline, '"freeze"', '"evolve"', '"ignore"', '"evolve"')
    rolled_back(pipeline, "frozen")
    pipeline.assert_equal("frozen", "loose")
