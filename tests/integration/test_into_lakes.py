"""A pipeline into Delta and one into Iceberg: each table holds what its source does, also after a kill between the
commits of two tables."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from schemas.failpoints import VARIABLE
from schemas.identifiers import TableName
from tests.conftest import MakePipeline
from tests.contract.destination_places import LAKE, DeltaPlace, IcebergPlace, in_a_folder
from tests.support.builders import a_table
from tests.support.pipeline import Pipeline

pytestmark = pytest.mark.further

SCHEMA = (
    """create table orders (
           id bigint primary key, "Größe.x" numeric(12, 2), at timestamptz, tags text[], doc jsonb, raw bytea,
           f double precision)""",
    "create table lines (order_id bigint, line int, note text, primary key (order_id, line))",
    "create table notes (id int primary key, big text, n int)",
    "alter table notes alter column big set storage external",
    "create table events (at timestamp, what text)",
    "alter table events replica identity full",
)
ROWS = (
    """insert into orders select i, i / 3.0, '2024-01-01 00:00:00.5+00'::timestamptz - i * interval '1 hour',
           array['a', null, 'b"' || i], '{"a": 1}', decode(md5(i::text), 'hex'), i from generate_series(1, 300) i""",
    "insert into lines select i, j, 'line' from generate_series(1, 100) i, generate_series(1, 3) j",
    "insert into notes select i, repeat('long ', 2000), 0 from generate_series(1, 20) i",
    "insert into events select '2020-01-01', 'same' from generate_series(1, 10)",
)
CHANGES = (
    "update orders set doc = doc || '{\"b\": null}', at = null where id % 5 = 0",
    "delete from orders where id % 7 = 0",
    "update orders set id = id + 1000 where id % 11 = 0",
    "update lines set line = line + 10 where order_id < 10",
    "update notes set n = n + 1",
    "update notes set id = id + 100 where id > 15",
    "insert into events values (null, null), ('2020-01-01', 'once')",
    "delete from events where ctid in (select ctid from events where what = 'same' limit 4)",
)
LATER = (
    "alter table orders add column extra int default 7",
    "alter table orders rename column f to g",
    "insert into orders (id, g) values (5000, 'NaN')",
    "truncate lines",
    "insert into lines values (1, 1, ''), (1, 2, null)",
)
READ = {
    "orders": [
        ("id::text", "id"),
        ('"Größe.x"::text', "`Größe.x`"),
        ("to_char(at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')", "date_format(at, 'yyyy-MM-dd HH:mm:ss.SSSSSS')"),
        ("array_to_string(tags, ',', 'NULL')", "array_join(tags, ',', 'NULL')"),
        ("doc::text", "doc"),
        ("encode(raw, 'hex')", "lower(hex(raw))"),
        ("{f}::text", "if(isnan({f}), 'NaN', cast(cast({f} as bigint) as string))"),
    ],
    "lines": [("order_id::text", "order_id"), ("line::text", "line"), ("note", "note")],
    "notes": [("id::text", "id"), ("big", "big"), ("n::text", "n")],
    "events": [("to_char(at, 'YYYY-MM-DD')", "date_format(at, 'yyyy-MM-dd')"), ("what", "what")],
}
"""What each client is asked for, so that both give the same text."""


@pytest.fixture(params=["delta", "iceberg"])
def mirror(
    make_pipeline: MakePipeline, spark: SparkSession, request: pytest.FixtureRequest
) -> tuple[Pipeline, DeltaPlace | IcebergPlace]:
    made = make_pipeline()
    place: DeltaPlace | IcebergPlace
    if request.param == "delta":
        place = DeltaPlace(made.folder, spark)
        options = f'type = "delta"\n            path = "{place.path}"'
    else:
        place = in_a_folder(made.folder, spark, LAKE)
        options = "\n".join(f'{key} = "{value}"' for key, value in {"type": "iceberg", **place.options}.items())
    duckdb = f'type = "duckdb"\n            path = "{made.lake_path}"'
    text = made.file.read_text()
    assert duckdb in text
    made.file.write_text(text.replace(duckdb, options))
    made.sql(*SCHEMA, *ROWS)
    made.publish()
    return made, place


def assert_equal(pipeline: Pipeline, place: DeltaPlace | IcebergPlace, f: str = "f", *, altered: bool = False) -> None:
    pipeline.settle(*READ, seconds=180)
    for table, pairs in READ.items():
        asked = [*pairs, ("extra::text", "extra")] if altered and table == "orders" else pairs
        there = place.frame(a_table(name=TableName("public", table)))
        rows = there.selectExpr(*[f"cast({each.format(f=f)} as string)" for _, each in asked]).collect()
        source = pipeline.source.execute(f"select {', '.join(each for each, _ in asked).format(f=f)} from {table}")
        assert sorted(map(repr, map(tuple, rows))) == sorted(map(repr, source.fetchall())), table


@pytest.mark.timeout(900)  # three starts of Spark, and commits that take seconds
def test_killing_apply_between_the_commits_of_two_tables_loses_and_repeats_nothing(
    mirror: tuple[Pipeline, DeltaPlace | IcebergPlace], request: pytest.FixtureRequest
) -> None:
    pipeline, place = mirror
    kind = request.node.callspec.params["mirror"]
    pipeline.start()
    assert_equal(pipeline, place)
    pipeline.stop_apply()
    with pipeline.source.transaction():
        pipeline.sql(*CHANGES)

    pipeline.start_apply_process(**{VARIABLE: f"{kind}.committed=kill@2"})
    pipeline.wait_for_death_of_apply()
    pipeline.start_apply()

    assert_equal(pipeline, place)
    pipeline.sql(*LATER)
    assert_equal(pipeline, place, f="g", altered=True)
