from __future__ import annotations

from dataclasses import replace

import pytest

from apply_spark.config import DestinationConfig
from apply_spark.errors import TableFailed
from apply_spark.new_shapes import require_allowed, require_hidden
from apply_spark.showing import Showing
from schemas.identifiers import TableId, TableName
from schemas.table import TableSchema
from tests.support.builders import INT8, a_column, a_table

ID, EMAIL, NOTE = a_column("id", INT8, key=True, number=1), a_column("email", number=2), a_column("note", number=3)
PEOPLE = a_table(ID, EMAIL, NOTE)
MAIL, MORE = replace(EMAIL, name="mail"), a_column("more", number=4)


def showing(**settings: object) -> Showing:
    return Showing.configured(DestinationConfig.model_validate({"type": "memory", **settings}))


def refused(rules: Showing, before: TableSchema, after: TableSchema) -> TableFailed:
    with pytest.raises(TableFailed) as caught:
        require_allowed(rules, before, after)
    assert caught.value.table == after.name
    return caught.value


@pytest.mark.parametrize("rule", ["public.orders.email", "*.*.email"])
@pytest.mark.parametrize("how", ["hash", "null", "drop"])
def test_a_name_without_a_rule_brings_nothing_to_light(rule: str, how: str) -> None:
    rules = showing(columns={rule: how})

    error = refused(rules, PEOPLE, a_table(ID, MAIL, NOTE))

    assert "email" in error.reason
    assert '"public.orders.mail"' in error.solution
    require_allowed(rules, PEOPLE, a_table(ID, NOTE, MORE))


def test_another_name_of_the_table_brings_nothing_to_light_either() -> None:
    rules = showing(columns={"public.orders.email": "hash"})
    renamed = replace(PEOPLE, name=TableName("public", "people"))
    others = [a_table(ID), PEOPLE]

    with pytest.raises(TableFailed, match=r"may be public\.orders\.email") as caught:
        require_hidden(rules, others, renamed)

    assert '"public.people.email"' in caught.value.solution
    require_hidden(showing(columns={"*.*.email": "hash"}), others, renamed)


def test_whoever_says_so_may_see_it() -> None:
    rules = showing(columns={"*.*.email": "hash", "public.orders.mail": "show"})

    require_allowed(rules, PEOPLE, a_table(ID, MAIL, NOTE))


def test_without_numbers_a_column_that_came_may_be_the_one_that_went() -> None:
    rules = showing(columns={"*.*.email": "hash"})
    other = replace(a_table(ID, NOTE, MORE), id=TableId(1))

    refused(rules, PEOPLE, other)
    refused(rules, PEOPLE, a_table(ID, replace(MAIL, number=0), NOTE))
    require_allowed(rules, PEOPLE, replace(a_table(ID, EMAIL, MORE), id=TableId(1)))


@pytest.mark.parametrize(
    ("after", "word"),
    [
        (a_table(ID, EMAIL, NOTE, MORE), "more came"),
        (a_table(ID, NOTE), "email went"),
        (a_table(ID, MAIL, NOTE), "email went and mail came"),
        (a_table(ID, replace(EMAIL, type_oid=INT8), NOTE), "another type"),
    ],
)
def test_a_frozen_table_stops_at_any_new_shape_that_would_be_seen(after: TableSchema, word: str) -> None:
    error = refused(showing(on_new_shape="freeze"), PEOPLE, after)

    assert word in error.reason
    assert "rollback" in error.solution
    require_allowed(showing(), PEOPLE, after)


def test_a_frozen_table_does_not_mind_what_is_not_shown() -> None:
    rules = showing(on_new_shape="freeze", columns={"*.*.more": "drop", "*.*.email": "hash"})

    require_allowed(rules, PEOPLE, a_table(ID, replace(EMAIL, nullable=False), NOTE, MORE))


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        (PEOPLE, a_table(ID, replace(EMAIL, type_oid=INT8), NOTE), "another type"),
        (PEOPLE, a_table(replace(ID, key=False), replace(EMAIL, key=True), NOTE), "another key"),
        (a_table(EMAIL, NOTE), a_table(EMAIL), "rows that have no key"),
        (PEOPLE, a_table(ID, EMAIL, replace(NOTE, name="phone")), "something else"),
        (PEOPLE, replace(PEOPLE, id=TableId(1)), "which of its columns is which"),
    ],
)
def test_what_cannot_be_ignored_stops_the_table(before: TableSchema, after: TableSchema, word: str) -> None:
    error = refused(showing(on_new_shape="ignore", columns={"*.*.phone": "hash"}), before, after)

    assert word in error.reason


def test_columns_that_come_go_and_have_another_name_are_ignored() -> None:
    rules = showing(on_new_shape="ignore")

    require_allowed(rules, PEOPLE, a_table(ID, replace(NOTE, name="remark"), MORE))
