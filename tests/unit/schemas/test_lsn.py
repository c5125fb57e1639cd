from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.lsn import Lsn, Position

ANY = st.integers(0, 2**64 - 1)


def test_an_lsn_prints_as_postgres_prints_it() -> None:
    assert str(Lsn(0x16_B374_D848)) == f"{Lsn(0x16_B374_D848)}" == "16/B374D848"
    assert repr(Lsn(0)) == "Lsn('0/0')"


@given(ANY)
def test_an_lsn_is_read_back_from_its_text_in_either_case(value: int) -> None:
    lsn = Lsn(value)

    assert Lsn.parse(str(lsn)) == Lsn.parse(str(lsn).lower()) == lsn == value


@given(ANY, ANY)
def test_lsns_are_ordered_as_numbers_not_as_text(one: int, other: int) -> None:
    assert (Lsn(one) < Lsn(other)) == (one < other)


def test_a_longer_text_may_be_the_smaller_lsn() -> None:
    assert Lsn.parse("9/FFFFFFFF") < Lsn.parse("10/0")


@pytest.mark.parametrize("value", [-1, 2**64])
def test_a_number_outside_64_bits_is_not_an_lsn(value: int) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        Lsn(value)


@pytest.mark.parametrize("text", ["", "/", "16", "16/", "/1", "16/B374D848 ", "1/2/3", "G/0", "+1/0", "0x1/0", "0/1_0"])
def test_a_text_that_only_resembles_an_lsn_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an LSN"):
        Lsn.parse(text)


@given(st.text().filter(lambda text: re.fullmatch(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}", text) is None))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an LSN"):
        Lsn.parse(text)


def test_positions_are_ordered_by_commit_and_then_by_ordinal() -> None:
    positions = [Position(Lsn(2), 0), Position(Lsn(1), 10), Position(Lsn(1), 9)]

    assert sorted(positions) == [Position(Lsn(1), 9), Position(Lsn(1), 10), Position(Lsn(2), 0)]


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**63 - 1))
def test_a_position_is_read_as_it_is_printed(lsn: int, ordinal: int) -> None:
    position = Position(Lsn(lsn), ordinal)

    assert Position.parse(str(position)) == position
    assert isinstance(Position.parse(str(position)).commit_lsn, Lsn)


@pytest.mark.parametrize(
    "text", ["", "16/B374D848", "16/B374D848/", "16/B374D848/-1", "/1", "1/2/3/4", "16/0/x", "1/0/٣"]
)
def test_a_text_that_only_resembles_a_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        Position.parse(text)
