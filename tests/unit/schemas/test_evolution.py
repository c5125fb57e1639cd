from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.evolution import ColumnAdded, ColumnDropped, ColumnRenamed, SchemaChange, changes, reached
from schemas.identifiers import TableId, TableName
from schemas.table import Column, ReplicaIdentity, TableSchema
from tests.support.builders import INT8, a_column, a_table

VARCHAR, NUMERIC = 1043, 1700
ID = a_column("id", INT8, nullable=False, key=True, number=1)
NOTE = a_column("note", number=2)
PRICE = a_column("price", INT8, number=3)
BEFORE = a_table(ID, NOTE, PRICE)


def test_a_shape_that_stays_needs_nothing() -> None:
    loosened = a_table(ID, replace(NOTE, nullable=False, missing="forgotten"), PRICE)

    assert changes(BEFORE, BEFORE) == []
    assert changes(BEFORE, loosened) == []


def test_columns_that_come_go_and_change_their_names_are_told_by_their_numbers() -> None:
    more = a_column("more", INT8, number=7, missing="7")
    renamed = replace(PRICE, name="cost")

    assert changes(BEFORE, a_table(ID, renamed, more)) == [
        ColumnDropped(NOTE),
        ColumnRenamed(PRICE, renamed),
        ColumnAdded(more),
    ]


def test_columns_that_exchange_their_names_are_renamed_and_one_that_takes_an_old_name_is_new() -> None:
    exchanged = replace(NOTE, name="price"), replace(PRICE, name="note")
    anew = replace(NOTE, number=4, missing="x")

    assert changes(BEFORE, a_table(ID, *exchanged)) == [
        ColumnRenamed(NOTE, exchanged[0]),
        ColumnRenamed(PRICE, exchanged[1]),
    ]
    assert changes(BEFORE, a_table(ID, PRICE, anew)) == [ColumnDropped(NOTE), ColumnAdded(anew)]


def test_a_key_column_may_change_its_name() -> None:
    renamed = replace(ID, name="number")

    assert changes(BEFORE, a_table(renamed, NOTE, PRICE)) == [ColumnRenamed(ID, renamed)]


def test_another_length_of_a_varchar_needs_nothing_and_another_precision_a_copy() -> None:
    short, exact = a_column("a", VARCHAR, number=4), a_column("b", NUMERIC, number=5)
    before = a_table(ID, short, exact)

    assert changes(before, a_table(ID, replace(short, modifier=104), exact)) == []
    assert changes(before, a_table(ID, short, replace(exact, modifier=655366))) is None


@pytest.mark.parametrize(
    "after",
    [
        a_table(ID, replace(NOTE, type_oid=INT8), PRICE),
        a_table(ID, replace(NOTE, delimiter=";"), PRICE),
        a_table(ID, replace(NOTE, key=True), PRICE),
        a_table(NOTE, PRICE),
        a_table(ID, NOTE, replace(PRICE, number=0)),
        a_table(ID, NOTE, replace(PRICE, number=0), a_column("more", number=4)),
        a_table(ID, PRICE, NOTE),
        replace(BEFORE, identity=ReplicaIdentity.FULL),
        replace(BEFORE, id=TableId(1)),
        replace(BEFORE, name=TableName("public", "items")),
    ],
)
def test_what_cannot_be_known_to_leave_values_alone_needs_a_copy(after: TableSchema) -> None:
    assert changes(BEFORE, after) is None


def test_a_column_that_was_there_and_was_not_published_needs_a_copy() -> None:
    hidden = a_column("hidden", number=4, missing="only of rows before it")

    assert changes(replace(BEFORE, width=4), a_table(ID, NOTE, PRICE, hidden)) is None
    assert changes(replace(BEFORE, width=0), a_table(ID, NOTE, PRICE, hidden)) is None
    assert changes(replace(BEFORE, width=3), a_table(ID, NOTE, PRICE, hidden)) == [ColumnAdded(hidden)]


def test_what_rows_miss_in_a_column_is_what_the_catalog_said_when_the_column_came() -> None:
    def with_more(*columns: Column) -> TableSchema:
        return a_table(ID, *columns)

    seven = a_column("a", INT8, number=8, missing="7")
    nine = a_column("b", INT8, number=9, missing="9")
    forgotten = replace(seven, name="renamed", missing=None)

    last = reached([with_more(), with_more(seven), with_more(forgotten, nine)])

    assert [(column.name, column.missing) for column in last.columns] == [("id", None), ("renamed", "7"), ("b", "9")]
    assert reached([BEFORE]) == BEFORE


@st.composite
def shapes(draw: st.DrawFn) -> tuple[TableSchema, TableSchema]:
    """A table, and what may become of it without a touch of its rows: any columns go, come, and take any names."""
    width = draw(st.integers(1, 5))
    before = draw(st.sets(st.integers(2, max(2, width)), max_size=width))
    kept = draw(st.sets(st.sampled_from(sorted(before)))) if before else set()
    after = sorted(kept | draw(st.sets(st.integers(max(2, width) + 1, 9), max_size=3)))
    names = st.permutations("abcdefgh")

    def schema(numbers: list[int]) -> TableSchema:
        named = zip(draw(names), numbers, strict=False)
        return a_table(ID, *(a_column(name, number=number, missing=f"default {number}") for name, number in named))

    return replace(schema(sorted(before)), width=max(2, width)), schema(after)


def made(row: dict[str, str], steps: list[SchemaChange]) -> dict[str, str | None]:
    """A destination in five lines: all at once, as the names before and after are those of two moments."""
    gone = {step.column.name for step in steps if isinstance(step, ColumnDropped)}
    names = {step.before.name: step.after.name for step in steps if isinstance(step, ColumnRenamed)}
    added = {step.column.name: step.column.missing for step in steps if isinstance(step, ColumnAdded)}
    return {names.get(name, name): value for name, value in row.items() if name not in gone} | added


@given(shapes())
def test_whoever_makes_the_changes_has_each_value_under_the_name_that_its_column_has_then(
    both: tuple[TableSchema, TableSchema],
) -> None:
    before, after = both
    numbers = {column.number for column in before.columns}

    steps = changes(before, after)

    assert steps is not None
    assert made({column.name: f"value {column.number}" for column in before.columns}, steps) == {
        column.name: f"value {column.number}" if column.number in numbers else column.missing
        for column in after.columns
    }
