"""A table is divided so that every block is read once, and the end is open."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ByteSize

from capture.table_sync.copier import copy_command
from capture.table_sync.ranges import CopyRange, divide
from tests.support.published import BLOCK, a_file, a_published_table


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.booleans()), min_size=1, max_size=6),
    st.integers(1, 100),
    st.integers(1, 1000),
)
def test_every_block_of_every_file_is_in_one_range_and_the_last_is_open(
    files: list[tuple[int, bool]], most: int, smallest: int
) -> None:
    table = a_published_table(*(a_file(blocks, name=f"t{i}", divisible=d) for i, (blocks, d) in enumerate(files)))

    ranges = divide(table, most, ByteSize(smallest * BLOCK))

    assert [part.index for part in ranges] == list(range(len(ranges)))
    assert len(ranges) <= most + len(files)
    for file in table.files:
        mine = [part for part in ranges if part.file == file]
        assert mine[0].first == 0
        assert mine[-1].end is None
        assert all(before.end == after.first > before.first for before, after in pairwise(mine))
        assert sum(part.blocks for part in mine) == file.blocks
        assert file.divisible or len(mine) == 1


@pytest.mark.parametrize(("blocks", "expected"), [(0, 1), (1, 1), (19, 1), (20, 2), (79, 7), (80, 8), (100_000, 8)])
def test_a_table_has_as_many_ranges_as_its_size_is_worth(blocks: int, expected: int) -> None:
    ranges = divide(a_published_table(a_file(blocks)), 8, ByteSize(10 * BLOCK))

    assert len(ranges) == expected


def test_ranges_of_one_file_are_of_one_size() -> None:
    ranges = divide(a_published_table(a_file(4001)), 4, ByteSize(BLOCK))

    assert [part.blocks for part in ranges] == [1000, 1000, 1000, 1001]


def test_a_table_whose_files_may_not_be_read_is_one_range() -> None:
    assert divide(a_published_table(), 8, ByteSize(BLOCK)) == [CopyRange(0)]


def test_ordinals_of_two_ranges_never_meet() -> None:
    rows_of_the_largest_file = 2**32 * 291

    assert CopyRange(1).first_ordinal - CopyRange(0).first_ordinal > rows_of_the_largest_file
    assert CopyRange(2**20).first_ordinal + rows_of_the_largest_file < 2**63


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (CopyRange(0), 'copy (select "id" from "public"."t" where (a)) to stdout'),
        (CopyRange(0, a_file(9)), 'copy (select "id" from only "public"."t" where (a)) to stdout'),
        (
            CopyRange(1, a_file(9, name="l"), 3, 6),
            """copy (select "id" from only "public"."l" where ctid >= '(3,0)' and ctid < '(6,0)' and (a)) to stdout""",
        ),
    ],
)
def test_a_row_filter_holds_within_the_range(part: CopyRange, expected: str) -> None:
    assert copy_command(a_published_table(row_filter="a"), part).as_string() == expected
