from __future__ import annotations

import math
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.pg_types.registry import SCALARS, TYPES, pg_type

BOOL, BYTEA, INT8, TEXT, FLOAT4, NUMERIC = 16, 17, 20, 25, 700, 1700
BYTEA_ARRAY, INT4_ARRAY, TEXT_ARRAY, BOX_ARRAY, TIMESTAMP_ARRAY = 1001, 1007, 1009, 1020, 1115


def _array_literal(items: list[str | None], quote: Callable[[str], bool]) -> str:
    """What array_out prints: quotes where they are needed, and wherever `quote` asks for them."""

    def printed(item: str | None) -> str:
        if item is None:
            return "NULL"
        if not quote(item):
            return item
        return '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"'

    return "{" + ",".join(printed(item) for item in items) + "}"


def _needs_quotes(item: str) -> bool:
    return not item or item.upper() == "NULL" or any(c in '{},"\\' or c.isspace() for c in item)


@pytest.mark.parametrize(
    ("oid", "text", "value"),
    [
        (BOOL, "t", True),
        (BOOL, "f", False),
        (INT8, "-9223372036854775808", -(2**63)),
        (NUMERIC, "0.1000", "0.1000"),
        (NUMERIC, "NaN", "NaN"),
        (NUMERIC, "-Infinity", "-Infinity"),
        (FLOAT4, "Infinity", math.inf),
        (BYTEA, "\\x", b""),
        (BYTEA, "\\x00ff41", b"\x00\xffA"),
        (TEXT, "", ""),
        (999_999, "(1,2)", "(1,2)"),
    ],
)
def test_the_text_of_the_server_becomes_the_value(oid: int, text: str, value: object) -> None:
    assert pg_type(oid).parse(text) == value


@given(st.floats(width=32, allow_nan=False))
def test_a_float4_survives_the_shortest_text_that_postgres_prints(value: float) -> None:
    parsed = pg_type(FLOAT4).parse(f"{value:.9g}")

    assert struct.pack(">f", parsed) == struct.pack(">f", value)


@pytest.mark.parametrize(
    ("oid", "text", "value"),
    [
        (TEXT_ARRAY, "{}", []),
        (TEXT_ARRAY, '{""}', [""]),
        (TEXT_ARRAY, "{NULL}", [None]),
        (TEXT_ARRAY, '{"NULL",NULL,null}', ["NULL", None, "null"]),
        (TEXT_ARRAY, r'{"a\"b","c\\d","e,f","{g}"}', ['a"b', "c\\d", "e,f", "{g}"]),
        (TEXT_ARRAY, '{"line\nbreak"}', ["line\nbreak"]),
        (TEXT_ARRAY, '{"{{"}', ["{{"]),
        (INT4_ARRAY, "{1,NULL,-3}", [1, None, -3]),
        (BYTEA_ARRAY, r'{"\\x00ff","\\x"}', [b"\x00\xff", b""]),
        (TIMESTAMP_ARRAY, '{"1970-01-01 00:00:01",infinity}', [1_000_000, 2**63 - 1]),
    ],
)
def test_an_array_of_one_dimension_becomes_a_list(oid: int, text: str, value: list[object]) -> None:
    assert pg_type(oid).parse(text) == value


@given(st.lists(st.none() | st.text() | st.text(alphabet='\\"{},NUL ')))
def test_any_array_of_text_is_read_back(items: list[str | None]) -> None:
    parse = pg_type(TEXT_ARRAY).parse

    assert parse(_array_literal(items, _needs_quotes)) == items
    assert parse(_array_literal(items, lambda _: True)) == items


@pytest.mark.parametrize("text", ["{{1,2},{3,4}}", "[0:1]={1,2}", "[2:3][1:1]={{1},{2}}", "{{{1}}}"])
def test_an_array_that_no_list_can_hold_stays_the_literal_that_it_is(text: str) -> None:
    assert pg_type(INT4_ARRAY).parse(text) == text


@pytest.mark.parametrize(
    "text", ["", "1", "{", "}", "{1", "1}", "{1,}", "{,1}", "{1,,2}", '{"1}', "{1}}", "{1}x", '{1"2"}', "{1;2}"]
)
def test_what_is_no_array_literal_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not an array|invalid literal"):
        pg_type(INT4_ARRAY).parse(text)


def test_the_items_of_an_array_are_divided_as_their_type_says() -> None:
    assert pg_type(BOX_ARRAY).parse("{(1,1),(0,0);NULL;(3,3),(2,2)}") == ["(1,1),(0,0)", None, "(3,3),(2,2)"]
    assert pg_type(999_999, ":").parse('{01,02:"a:b"}') == ["01,02", "a:b"]
    assert pg_type(999_999, ",").parse('{happy,"(1,\\"a\\")",NULL}') == ["happy", '(1,"a")', None]


def test_every_type_is_found_by_its_oid_and_every_array_has_its_element() -> None:
    assert all(TYPES[oid].oid == oid for oid in TYPES)
    assert len(TYPES) == 2 * len(SCALARS)
    assert all(TYPES[known.array_oid or 0].element is known for known in SCALARS)
    assert pg_type(INT4_ARRAY).branches == ["null", {"type": "array", "items": ["null", "int"]}, "string"]
    assert pg_type(TEXT).branches == ["null", "string"]
