"""Moments in DuckDB: the microsecond that went in is the one that is there."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from apply_spark.destinations.duckdb_types import duckdb_type
from schemas.pg_types.dates import parse_timestamp
from tests.support.builders import a_column

FIRST, LAST = -210_866_803_200_000_000, 9_223_371_331_199_999_999
"""4714-11-24 BC, where Postgres begins, and the last moment of which DuckDB knows the date."""
moments = st.lists(st.integers(FIRST, LAST), min_size=1, max_size=50)


@pytest.mark.parametrize("type_oid", [1114, 1184], ids=["timestamp", "timestamptz"])
@settings(max_examples=30)
@given(values=moments)
@example(values=[FIRST, -1, 0, 9_007_489_036_452_511_212, LAST])
def test_every_moment_is_held_to_the_microsecond(type_oid: int, values: list[int]) -> None:
    converted = duckdb_type(a_column("at", type_oid)).convert("moment")

    with duckdb.connect() as db:
        db.execute("create table moments as select unnest(?::bigint[]) as moment", [values])
        held = db.execute(f"select epoch_us({converted}) from moments").fetchall()

    assert [moment for (moment,) in held] == values


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz"])
@pytest.mark.parametrize("text", ["294247-01-10 04:00:54.775807", "294276-12-31 23:59:59.999999"])
def test_a_moment_beyond_what_duckdb_counts_is_refused_and_not_another_moment(kind: str, text: str) -> None:
    oid = {"timestamp": 1114, "timestamptz": 1184}[kind]
    converted = duckdb_type(a_column("at", oid)).convert("moment")

    with duckdb.connect() as db, pytest.raises(duckdb.InvalidInputException, match="294247"):
        db.execute(f"select {converted} from (select ?::bigint as moment)", [parse_timestamp(text)]).fetchall()
