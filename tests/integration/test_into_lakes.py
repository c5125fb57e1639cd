"""Pipelines into Delta, Iceberg and ClickHouse, with masks: each table shows what its source does, also after a kill in
the middle of an interval."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from schemas.failpoints import VARIABLE
from schemas.identifiers import TableName
from tests.conftest import MakePipeline
from tests.contract.destination_places import LAKE, ClickHousePlace, DeltaPlace, IcebergPlace, in_a_folder
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
    "update orders set id = id + 1000, tags = null where id % 11 = 0",
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
MASKED = """
            [destinations.lake.columns]
            "public.notes.big" = "hash"
            "public.lines.note" = "null"
"""
KILLED_AT = {
    "delta": "delta.committed=kill@2",
    "iceberg": "iceberg.committed=kill@2",
    "clickhouse": "clickhouse.carried=kill@2",
}
SOURCE = {
    "orders": {
        "id": "id::text",
        "size": '"Größe.x"::text',
        "at": "to_char(at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')",
        "tags": "coalesce(array_to_string(tags, ',', 'NULL'), 'none')",
        "doc": "doc::text",
        "raw": "encode(raw, 'hex')",
        "f": "{f}::text",
    },
    "lines": {"order_id": "order_id::text", "line": "line::text", "note": "null"},
    "notes": {"id": "id::text", "big": "encode(sha256(convert_to(big, 'UTF8')), 'hex')", "n": "n::text"},
    "events": {"day": "to_char(at, 'YYYY-MM-DD')", "what": "what"},
}
"""What is asked for at the source, so that every engine can give the same text."""
SPARK = {
    "size": "`Größe.x`",
    "at": "date_format(at, 'yyyy-MM-dd HH:mm:ss.SSSSSS')",
    "tags": "coalesce(array_join(tags, ',', 'NULL'), 'none')",
    "raw": "lower(hex(raw))",
    "f": "if(isnan({f}), 'NaN', cast(cast({f} as bigint) as string))",
    "day": "date_format(at, 'yyyy-MM-dd')",
}
_LIST = "`Array(Nullable(String))`"
CLICKHOUSE = {
    "size": "toDecimalString(`Größe.x`, 2)",
    "tags": f"if(tags is null, 'none', arrayStringConcat(arrayMap(x -> ifNull(x, 'NULL'), tags.{_LIST}), ','))",
    "raw": "lower(hex(raw))",
    "f": "if(isNaN({f}), 'NaN', toString({f}))",
    "day": "formatDateTime(at, '%Y-%m-%d')",
}

Read = Callable[[str, dict[str, str]], list[tuple[Any, ...]]]
"""The rows of a table, by the columns that are asked for."""


@pytest.fixture(params=KILLED_AT)
def engine(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture
def pipeline(make_pipeline: MakePipeline) -> Pipeline:
    made = make_pipeline(MASKED)
    made.sql(*SCHEMA, *ROWS)
    made.publish()
    return made


@pytest.fixture
def read(pipeline: Pipeline, engine: str, spark: SparkSession) -> Read:
    """Makes the engine the pipeline's destination."""
    if engine == "clickhouse":
        clickhouse = ClickHousePlace(pipeline.folder)
        _goes_to(pipeline, engine, clickhouse.options)
        return lambda table, asked: _from_clickhouse(clickhouse, table, asked)
    place: DeltaPlace | IcebergPlace
    if engine == "delta":
        place = DeltaPlace(pipeline.folder, spark)
        _goes_to(pipeline, engine, {"path": str(place.path)})
    else:
        place = in_a_folder(pipeline.folder, spark, LAKE)
        _goes_to(pipeline, engine, place.options)
    return lambda table, asked: _from_spark(place, table, asked)


def _goes_to(pipeline: Pipeline, engine: str, options: dict[str, str]) -> None:
    duckdb = f'type = "duckdb"\n            path = "{pipeline.lake_path}"'
    text = pipeline.file.read_text()
    assert duckdb in text
    lines = [f'{key} = "{value}"' for key, value in {"type": engine, **options}.items()]
    pipeline.file.write_text(text.replace(duckdb, "\n".join(lines)))


def _from_spark(place: DeltaPlace | IcebergPlace, table: str, asked: dict[str, str]) -> list[tuple[Any, ...]]:
    texts = [f"cast({SPARK.get(each, each).format(**asked)} as string)" for each in asked]
    return [tuple(row) for row in place.frame(a_table(name=TableName("public", table))).selectExpr(*texts).collect()]


def _from_clickhouse(place: ClickHousePlace, table: str, asked: dict[str, str]) -> list[tuple[Any, ...]]:
    texts = ", ".join(f"cast({CLICKHOUSE.get(each, each).format(**asked)} as Nullable(String))" for each in asked)
    return place.query(f"select {texts} from {place.view(a_table(name=TableName('public', table)))}")


def assert_equal(pipeline: Pipeline, read: Read, f: str = "f", *, altered: bool = False) -> None:
    pipeline.settle(*SOURCE, seconds=180)
    for table, columns in SOURCE.items():
        asked = columns | ({"extra": "extra::text"} if altered and table == "orders" else {})
        there = pipeline.source.execute(f"select {', '.join(asked.values()).format(f=f)} from {table}").fetchall()
        rows = read(table, asked | ({"f": f} if "f" in asked else {}))
        assert sorted(map(repr, rows)) == sorted(map(repr, there)), table


@pytest.mark.timeout(900)  # three starts of Spark, and commits that take seconds
def test_killing_apply_in_the_middle_of_an_interval_loses_and_repeats_nothing(
    pipeline: Pipeline, read: Read, engine: str
) -> None:
    pipeline.start()
    assert_equal(pipeline, read)
    pipeline.stop_apply()
    with pipeline.source.transaction():
        pipeline.sql(*CHANGES)

    pipeline.start_apply_process(**{VARIABLE: KILLED_AT[engine]})
    pipeline.wait_for_death_of_apply()
    pipeline.start_apply()

    assert_equal(pipeline, read)
    pipeline.sql(*LATER)
    assert_equal(pipeline, read, f="g", altered=True)
