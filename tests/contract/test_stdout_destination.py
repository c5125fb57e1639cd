"""What the stdout destination prints: lines of JSON that name tables and columns as the source does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from apply_spark.destinations.stdout import StdoutDestination
from schemas.identifiers import TableName
from tests.contract.destination_places import (
    EVENTS,
    LAKE,
    ORDERS,
    a_batch,
    a_progress,
    bag_changes,
    changes,
    fill,
    gone,
    upsert,
)
from tests.contract.destination_types import from_kafka
from tests.support.builders import INT8, a_column, a_table


def test_it_remembers_nothing() -> None:
    destination = StdoutDestination(LAKE, {})
    destination.save_progress(a_progress(1, ORDERS))
    destination.shutdown()

    assert destination.startup() is None


def test_a_copy_is_printed_row_by_row_with_its_nulls(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    fill(StdoutDestination(LAKE, {}), spark, ORDERS, (1, None, 2))

    assert _lines(capsys) == [
        {"table": "public.orders", "event": "begin copy"},
        {"table": "public.orders", "event": "copy", "row": {"id": 1, "note": None, "amount": 2}},
    ]


def test_changes_are_printed_and_what_was_not_sent_is_named(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = upsert(2, None, 2, missing=["note"], base=(1,))

    StdoutDestination(LAKE, {}).write_events(
        a_batch(
            changes(spark, ORDERS, gone(1), moved, truncate=True),
            bag_changes(spark, EVENTS, (("x", None), -2)),
        )
    )

    assert _lines(capsys) == [
        {"table": "public.orders", "event": "truncate"},
        {"table": "public.orders", "event": "delete", "key": {"id": 1}, "row": None, "missing": []},
        {
            "table": "public.orders",
            "event": "upsert",
            "key": {"id": 2},
            "row": {"id": 2, "note": None, "amount": 2},
            "missing": ["note"],
        },
        {"table": "public.events", "event": "net", "row": {"note": "x", "amount": None}, "net": -2},
    ]


def test_an_array_is_printed_as_a_list_or_as_the_literal_that_no_list_can_hold(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    table = a_table(a_column("id", INT8, key=True), a_column("words", 1009), a_column("numbers", 1022))
    destination = StdoutDestination(LAKE, {})
    rows = from_kafka(
        spark, table, ["1", '{a,NULL,"b c"}', "{0.1,1e300}"], ["2", "[0:1]={a,b}", None], ["3", "{}", "{{1},{2}}"]
    )

    destination.write_table_rows(table, rows, a_progress(1, table))

    assert [line["row"] for line in _lines(capsys)] == [
        {"id": 1, "words": ["a", None, "b c"], "numbers": [0.1, 1e300]},
        {"id": 2, "words": "[0:1]={a,b}", "numbers": None},
        {"id": 3, "words": [], "numbers": "{{1},{2}}"},
    ]


def test_odd_names_are_printed_as_they_are(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    odd = a_table(a_column('Größe "x".y', INT8, key=True), a_column("row"), name=TableName('My "schema"', "t\\1"))

    fill(StdoutDestination(LAKE, {}), spark, odd, (1, "a"))

    first, second = _lines(capsys)
    assert first == {"table": 'My "schema".t\\1', "event": "begin copy"}
    assert second["row"] == {'Größe "x".y': 1, "row": "a"}


def _lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]
