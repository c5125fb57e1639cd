from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from schemas.identifiers import TableName, pipeline_name
from schemas.lsn import Lsn
from schemas.topics import TopicNameTooLong, Topics

TOPICS = Topics(pipeline_name("shop"))
LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}")
# Postgres cuts names at 63 bytes; with three characters a byte, one such name fits in the bound of Kafka, not two.
NAMES = st.text(min_size=1, max_size=9) | st.text(alphabet="-._a2e ", min_size=1, max_size=12)
TABLES = st.builds(TableName, NAMES, NAMES)
LSNS = st.integers(0, 2**64 - 1).map(Lsn)


@given(TABLES)
def test_the_table_of_a_change_topic_is_read_back_from_its_name(table: TableName) -> None:
    topic = TOPICS.changes(table)

    assert TOPICS.table_of_changes(topic) == table


@given(TABLES, TABLES, LSNS, LSNS)
def test_two_topics_of_one_pipeline_never_share_a_name(one: TableName, other: TableName, early: Lsn, late: Lsn) -> None:
    assume(one != other)
    assume(early != late)
    named = [
        *(TOPICS.changes(table) for table in (one, other)),
        *(TOPICS.copy(table, generation) for table in (one, other) for generation in (early, late)),
        *(TOPICS.checkpoints, TOPICS.feedback, TOPICS.schemas, TOPICS.control),
    ]

    assert len(set(named)) == len(named)


@given(TABLES, LSNS)
def test_every_name_is_legal_for_kafka(table: TableName, generation: Lsn) -> None:
    for topic in (TOPICS.changes(table), TOPICS.copy(table, generation)):
        assert LEGAL.fullmatch(topic)


def test_plain_names_stay_as_they_are_and_others_are_escaped() -> None:
    assert TOPICS.changes(TableName("public", "orders")) == "shop.public.orders"
    assert TOPICS.changes(TableName("public", "Order Items")) == "shop.public.Order-20Items"
    assert TOPICS.changes(TableName("a.b", "é-1")) == "shop.a-2eb.-c3-a9-2d1"
    assert TOPICS.copy(TableName("public", "orders"), Lsn(255)) == "shop.public.orders.copy.00000000000000ff"


@pytest.mark.parametrize(
    "topic",
    [
        TOPICS.checkpoints,
        TOPICS.copy(TableName("public", "orders"), Lsn(1)),
        "other.public.orders",
        "shop.public.-ff",
        "shop.public.-6frders",
        "shop.public.-2",
        "shop.public.-2E",
    ],
)
def test_a_topic_that_is_not_a_change_topic_of_this_pipeline_has_no_table(topic: str) -> None:
    assert TOPICS.table_of_changes(topic) is None


def test_a_name_that_kafka_would_refuse_for_its_length_is_refused_with_the_table() -> None:
    with pytest.raises(TopicNameTooLong, match=r"public\.ééé"):
        TOPICS.changes(TableName("public", "é" * 63))


@pytest.mark.parametrize("text", ["", "Shop", "1shop", "shop-eu", "shop.eu", "a" * 41, "shop\n"])
def test_a_pipeline_name_that_would_need_an_escape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a pipeline name"):
        pipeline_name(text)
