from __future__ import annotations

import random

from console.demo.proof import TableProof, _digest
from console.demo.shop import EVENTS, long_text, new_customer, new_product


def test_the_same_seed_gives_the_same_shop() -> None:
    first, second = random.Random(7), random.Random(7)  # noqa: S311

    assert new_product(first, 1) == new_product(second, 1)
    assert new_customer(first, 1) == new_customer(second, 1)


def test_the_long_text_is_kept_outside_the_row() -> None:
    assert len(long_text(random.Random(1))) > 8192  # noqa: S311


def test_rows_that_look_alike_have_different_digests() -> None:
    rows = [("ab", "c"), ("a", "bc"), ("abc", None), ("abc", ""), (None, "abc"), ("-", "abc"), ("3:abc", "")]

    assert len({_digest(row) for row in rows}) == len(rows)


def test_tables_are_equal_only_if_no_row_is_alone_and_the_table_is_there() -> None:
    assert TableProof(EVENTS, 3, 3, 0, 0).equal
    assert not TableProof(EVENTS, 3, 3, 1, 1).equal
    assert not TableProof(EVENTS, 0, None, 0, 0).equal
