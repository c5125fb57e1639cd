"""Values for destinations that take Arrow: as Postgres prints them, or as they were; also of slices, and of nothing."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from apply_spark.destinations.arrow_types import PLAIN, TEXT, between, converted_lists, decimal
from schemas.pg_types.dates import parse_time

NUMERIC_10_2, NUMERIC_50_2 = (10 << 16 | 2) + 4, (50 << 16 | 2) + 4
MIDNIGHT_AFTER = 86_400_000_000


@given(st.lists(st.none() | st.integers(0, MIDNIGHT_AFTER)))
@example([0, 1, 100_000, 3_599_000_000, MIDNIGHT_AFTER - 1, MIDNIGHT_AFTER, None])
def test_a_time_of_day_is_what_postgres_prints(times: list[int | None]) -> None:
    texts = PLAIN["time"].converted(pa.array(times, pa.int64())).to_pylist()

    assert [None if text is None else parse_time(text) for text in texts] == times
    assert not any(text.endswith(("0", ".")) and "." in text for text in texts if text)


@pytest.mark.parametrize(
    ("modifier", "text"),
    [(NUMERIC_10_2, "-12345678.90"), (NUMERIC_10_2, "5.00"), (NUMERIC_50_2, "9" * 48 + ".01")],
)
def test_a_numeric_with_precision_is_a_decimal_to_the_last_digit(modifier: int, text: str) -> None:
    kind = decimal(modifier)
    assert kind is not None

    assert kind.converted(pa.array([text, None])).to_pylist() == [Decimal(text), None]
    assert not kind.has_misfits(pa.array([text, None]))
    assert kind.has_misfits(pa.array([text, "NaN", None]))


@pytest.mark.parametrize("modifier", [-1, (77 << 16) + 4, (3 << 16 | 0x7FE) + 4], ids=["none", "77 digits", "scale -2"])
def test_a_numeric_that_arrow_has_no_decimal_for_is_left_to_text(modifier: int) -> None:
    assert decimal(modifier) is None


@given(st.lists(st.none() | st.lists(st.none() | st.text(max_size=3), max_size=4)), st.integers(0, 3))
def test_lists_keep_their_items_and_what_is_null(lists: list[list[str | None] | None], skipped: int) -> None:
    arrow = pa.array(lists, pa.list_(pa.string())).slice(skipped)

    assert converted_lists(arrow, TEXT).to_pylist() == lists[skipped:]


def test_what_is_null_fits_everywhere() -> None:
    fits = between(1, 2)

    assert fits(pa.array([1, 2, None, 3])).to_pylist() == [True, True, None, False]
