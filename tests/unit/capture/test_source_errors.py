"""What Postgres says, and what is told of it."""

from __future__ import annotations

import pytest
from psycopg import errors

from capture.errors import SlotInUse, SourceRefused, SourceUnreachable, source_error


@pytest.mark.parametrize("state", ["22P02", "22003", "23505", "23514"])
def test_an_error_about_a_value_is_told_without_it(state: str) -> None:
    told = source_error(errors.lookup(state)("invalid input syntax: private words"), "copying public.orders")

    assert isinstance(told, SourceRefused)
    assert told.reason == f"Postgres refused copying public.orders (SQLSTATE {state})."


def test_a_missing_right_is_told_with_the_statement_that_gives_one() -> None:
    told = source_error(errors.InsufficientPrivilege("permission denied for table orders"), "copying public.orders")

    assert "permission denied for table orders" in told.reason
    assert "`grant select on TABLE to ROLE;`" in told.solution


@pytest.mark.parametrize(
    ("state", "kind"), [("08006", SourceUnreachable), ("57P01", SourceUnreachable), ("55006", SlotInUse)]
)
def test_what_time_may_heal_is_told_apart(state: str, kind: type[Exception]) -> None:
    assert isinstance(source_error(errors.lookup(state)("away"), "streaming"), kind)
