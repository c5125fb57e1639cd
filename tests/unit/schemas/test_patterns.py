from __future__ import annotations

import pytest

from schemas.identifiers import TableName
from schemas.patterns import matching

TABLES = [TableName("public", "orders"), TableName("public", "audit"), TableName("shop", "orders")]


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (["*"], ["public.orders", "public.audit", "shop.orders"]),
        (["public.*", "!public.audit"], ["public.orders"]),
        (["!*.audit", "*"], ["public.orders", "shop.orders"]),
        (["*.order?"], ["public.orders", "shop.orders"]),
        (["orders"], []),
        (["!public.audit"], []),
    ],
)
def test_patterns_name_tables_and_take_some_away(patterns: list[str], found: list[str]) -> None:
    assert [str(table) for table in matching(TABLES, patterns)] == found
