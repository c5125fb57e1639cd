from __future__ import annotations

import pytest

from apply_spark.config import DestinationConfig, OnNewShape, Treatment
from apply_spark.showing import Showing
from schemas.identifiers import TableName
from tests.support.builders import INT8, a_column, a_table

ORDERS, CUSTOMERS = TableName("public", "orders"), TableName("public", "customers")


def showing(**settings: object) -> Showing:
    return Showing.configured(DestinationConfig.model_validate({"type": "memory", **settings}))


def test_nothing_configured_is_everything_as_it_is() -> None:
    plain = showing()

    assert plain.told == ""
    assert plain.selects(ORDERS)
    assert plain.name_of(ORDERS) == ORDERS
    assert plain.treatment(ORDERS, "id") is Treatment.SHOW
    assert Showing.remembered("") == plain


def test_tables_are_chosen_by_patterns() -> None:
    some = showing(tables=["public.*", "!public.orders"])

    assert some.selects(CUSTOMERS)
    assert not some.selects(ORDERS)
    assert not some.selects(TableName("shop", "customers"))


def test_the_name_of_a_table_goes_before_that_of_its_schema() -> None:
    renamed = showing(rename={"public": "shop", "public.orders": "sales.all orders"})

    assert renamed.name_of(ORDERS) == TableName("sales", "all orders")
    assert renamed.name_of(CUSTOMERS) == TableName("shop", "customers")
    assert renamed.name_of(TableName("other", "orders")) == TableName("other", "orders")


@pytest.mark.parametrize(
    ("column", "how"),
    [
        ("public.customers.email", Treatment.HASH),
        ("public.customers.phone", Treatment.DROP),
        ("public.customers.id", Treatment.SHOW),
        ("public.customers.whatever comes", Treatment.NULL),
        ("shop.people.email", Treatment.HASH),
        ("shop.people.name", None),
    ],
)
def test_a_full_name_goes_before_patterns_and_of_patterns_the_one_that_shows_least(
    column: str, how: Treatment | None
) -> None:
    rules = {
        "*.*.email": "hash",
        "*.*.phone": "drop",
        "public.customers.*": "null",
        "public.customers.email": "hash",
        "public.customers.id": "show",
    }
    schema, table, name = column.split(".", 2)

    assert showing(columns=rules).rule(TableName(schema, table), name) is how


def test_a_column_that_a_rule_names_and_the_table_lacks_is_found() -> None:
    rules = showing(columns={"public.orders.emial": "hash", "public.orders.id": "show", "public.*.other": "drop"})

    assert rules.unmatched(a_table()) == ["emial"]


def test_what_is_told_comes_back_without_the_salt_and_tells_one_salt_from_another() -> None:
    first, second = (
        showing(tables=["a.*"], rename={"a": "b"}, columns={"a.t.x": "hash"}, salt=salt) for salt in ("s3cr3t", "other")
    )
    table = a_table(a_column("id", INT8, key=True), a_column("x"), name=TableName("a", "t"))

    assert Showing.remembered(first.told) == first
    assert "s3cr3t" not in first.told + repr(first)
    assert first.look(table) != second.look(table)
    assert first.look(a_table()) == second.look(a_table())


def test_the_policy_for_new_shapes_is_that_of_the_first_pattern_that_fits() -> None:
    policies = showing(on_new_shape="freeze", on_new_shape_of={"public.orders": "evolve", "public.*": "ignore"})

    found = [policies.policy(TableName(*name)) for name in (("public", "orders"), ("public", "x"), ("a", "b"))]

    assert found == [OnNewShape.EVOLVE, OnNewShape.IGNORE, OnNewShape.FREEZE]
