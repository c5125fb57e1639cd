"""Tables that are altered while they are mirrored, and what became of the mirror."""

from __future__ import annotations

from tests.support.builders import a_name
from tests.support.captured import Captured
from tests.support.pipeline import Pipeline


def mirrored_tables(pipeline: Pipeline, count: int) -> list[str]:
    tables = [a_name() for _ in range(count)]
    with pipeline.source.transaction():
        for table in tables:
            pipeline.sql(
                f"create table {table} (id int primary key, a text, n int)",
                f"insert into {table} select i, 'row ' || i, i from generate_series(1, 20) i",
            )
    pipeline.assert_equal(*tables)
    return tables


def copies(pipeline: Pipeline, table: str) -> int:
    return len(Captured(pipeline).generations(table))


def columns(pipeline: Pipeline, table: str) -> list[str]:
    """Of the mirror."""
    return [name for (name,) in pipeline.lake(f"select column_name from (describe public.{table})")]
