"""What destinations hold of tables that they show under another name, or in part: partial rows, bags, new shapes."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from apply_spark.config import DestinationConfig
from apply_spark.destination import Alteration, Batch
from apply_spark.errors import TableFailed
from apply_spark.hashing import Hasher, is_hashable
from apply_spark.rows import ArrowRows
from apply_spark.showing import Showing, salt_of
from apply_spark.shown import ShownDestination
from apply_spark.view import TableView
from schemas.evolution import changes as changes_between
from schemas.identifiers import TableName
from schemas.table import TableSchema
from tests.contract.destination_places import (
    Place,
    a_batch,
    a_progress,
    bag_changes,
    changes,
    fill,
    gone,
    make_place,
    upsert,
)
from tests.contract.destination_types import ARRAYS, SAMPLES, a_table_of, from_kafka
from tests.support.builders import INT8, a_column, a_table

SALT = "s3cr3t"
ID, EMAIL, PHONE, NOTE = (
    a_column("id", INT8, key=True, number=1),
    a_column("email", number=2),
    a_column("phone", INT8, number=3),
    a_column("note", number=4),
)
PEOPLE = a_table(ID, EMAIL, PHONE, NOTE)
SHOWN = a_table(ID, EMAIL, NOTE, name=TableName("shop", "people"))
"""As a client finds it, without its phone."""


@pytest.fixture(params=["memory", "duckdb"])
def place(request: pytest.FixtureRequest) -> Place:
    return make_place(request.param, request)


class Shown:
    """A place behind what it shows."""

    def __init__(self, place: Place, **settings: Any) -> None:  # noqa: ANN401 -- keys of a destination
        config = DestinationConfig.model_validate({"type": "memory", **settings})
        self.place = place
        self.destination = ShownDestination(place.opened(), Showing.configured(config), salt_of(config))
        self.destination.startup()

    def rows(self, schema: TableSchema) -> list[tuple[Any, ...]]:
        return sorted(self.place.rows(schema), key=repr)


@pytest.fixture
def people(place: Place, spark: SparkSession) -> Iterator[Shown]:
    rules = {"*.*.email": "hash", "*.*.phone": "drop"}
    shown = Shown(place, rename={"public.orders": "shop.people"}, columns=rules, salt=SALT)
    fill(shown.destination, spark, PEOPLE, (1, "a@x", 11, "one"), (2, "b@x", 22, "two"), (3, None, 33, "three"))
    yield shown
    shown.destination.shutdown()


def hashed(text: str) -> str:
    return hmac.new(SALT.encode(), text.encode(), "sha256").hexdigest()


def test_a_copy_and_changes_are_held_without_what_is_not_shown(people: Shown, spark: SparkSession) -> None:
    people.destination.write_events(a_batch(changes(spark, PEOPLE, upsert(2, "c@x", 22, "new"), gone(3))))

    assert people.rows(SHOWN) == [(1, hashed("a@x"), "one"), (2, hashed("c@x"), "new")]


def test_what_was_not_sent_is_kept_as_it_was_shown_and_what_is_not_shown_needs_no_base(
    people: Shown, spark: SparkSession
) -> None:
    people.destination.write_events(
        a_batch(
            changes(
                spark,
                PEOPLE,
                upsert(1, None, None, "kept", missing=["email", "phone"], base=(1,)),
                gone(2),
                upsert(20, None, 5, None, missing=["email", "note"], base=(2,)),
                upsert(9, "d@x", None, "no base", missing=["phone"]),
            )
        )
    )

    assert people.rows(SHOWN) == [
        (1, hashed("a@x"), "kept"),
        (20, hashed("b@x"), "two"),
        (3, None, "three"),
        (9, hashed("d@x"), "no base"),
    ]
    lost = changes(spark, PEOPLE, upsert(8, None, 1, None, missing=["email"]))
    with pytest.raises(TableFailed) as caught:
        people.destination.write_events(a_batch(lost))
    assert caught.value.table == PEOPLE.name


@pytest.mark.parametrize("salt", [None, SALT])
def test_rows_are_found_again_under_a_hashed_key_also_after_a_move(
    place: Place, spark: SparkSession, salt: str | None
) -> None:
    keyed = a_table(replace(EMAIL, key=True), replace(ID, key=True), NOTE)
    shown = Shown(place, columns={"*.*.email": "hash", "*.*.id": "hash"}, salt=salt)
    fill(shown.destination, spark, keyed, ("a", 1, "x"), ("b", 2, "y"), ("c", 3, "z"))

    moved = [gone("a", 1), upsert("aa", 1, None, missing=["note"], base=("a", 1))]
    shown.destination.write_events(a_batch(changes(spark, keyed, upsert("b", 2, "new"), gone("c", 3), *moved)))

    def told(text: str) -> str:
        return hashed(text) if salt else hashlib.sha256(text.encode()).hexdigest()

    texts = a_table(*(replace(column, type_oid=25) for column in keyed.columns))
    assert shown.rows(texts) == sorted([(told("b"), told("2"), "new"), (told("aa"), told("1"), "x")])
    shown.destination.shutdown()


def test_rows_without_a_key_that_are_alike_where_they_are_shown_come_and_go_by_number(
    place: Place, spark: SparkSession
) -> None:
    bag = a_table(NOTE, EMAIL, PHONE)
    shown = Shown(place, columns={"*.*.email": "drop", "*.*.phone": "null"})
    fill(shown.destination, spark, bag, ("x", "1", 1), ("x", "2", 2), ("x", "3", 3), ("y", "1", 1))

    nets = [(("x", "1", 1), -1), (("x", "2", 2), -1), (("x", "9", 9), 1), (("y", "1", 1), -1), (("y", "2", 2), 1)]
    shown.destination.write_events(a_batch(bag_changes(spark, bag, *nets, (("z", "0", 0), 2))))

    assert shown.rows(a_table(NOTE, PHONE)) == [("x", None), ("x", None), ("y", None), ("z", None), ("z", None)]
    shown.destination.shutdown()


def test_a_new_shape_arrives_without_what_is_not_shown(people: Shown, spark: SparkSession) -> None:
    late = a_column("late", number=5, missing="hidden")
    phone = a_column("private_phone", number=6, missing="5")
    after = a_table(ID, replace(EMAIL, name="e.mail"), replace(NOTE, name="remark"), late, phone)
    rules = {"*.*.e?mail": "hash", "*.*.email": "hash", "*.*.*phone": "drop", "*.*.late": "hash"}
    people.destination.shutdown()
    shown = Shown(people.place, rename={"public.orders": "shop.people"}, columns=rules, salt=SALT)
    made = changes_between(PEOPLE, after)
    assert made is not None

    rows = changes(spark, after, upsert(2, None, "new", "seen", "6", missing=["e_x2e_mail"], base=(2,)))
    shown.destination.write_events(Batch((rows,), a_progress(100, after), (Alteration(PEOPLE, after, tuple(made)),)))

    altered = replace(SHOWN, columns=(ID, replace(EMAIL, name="e.mail"), replace(NOTE, name="remark"), late))
    assert shown.rows(altered) == [
        (1, hashed("a@x"), "one", hashed("hidden")),
        (2, hashed("b@x"), "new", hashed("seen")),
        (3, None, "three", hashed("hidden")),
    ]
    shown.destination.shutdown()


@pytest.mark.parametrize("salt", [None, SALT])
def test_arrow_and_spark_show_the_same_of_every_type(spark: SparkSession, salt: str | None) -> None:
    """Of all types that have a hash, and of all others emptied."""
    samples = (*SAMPLES, *ARRAYS)
    table = a_table_of(samples, key=False)
    how = {f"*.*.{column.name}": "hash" if is_hashable(column) else "null" for column in table.columns[:-1]}
    config = DestinationConfig.model_validate({"type": "memory", "columns": how, "salt": salt})
    view = TableView(Showing.configured(config), Hasher(salt_of(config)), table)
    rows = from_kafka(spark, table, ["1", *(sample.text for sample in samples)], ["2", *[None] * len(samples)])

    in_spark, in_arrow = (view.copied(each).arrow() for each in (rows, ArrowRows(spark, rows.arrow())))

    first, second = in_spark.to_pylist()
    assert in_arrow.to_pylist() == [first, second]
    assert in_arrow.schema.field("row").type == in_spark.schema.field("row").type
    assert len([value for value in first["row"].values() if isinstance(value, str) and len(value) == 64]) > 20
    assert {value for name, value in list(second["row"].items())[1:]} == {None}


def test_the_salt_stands_in_no_plan_of_spark(place: Place, spark: SparkSession) -> None:
    config = DestinationConfig.model_validate({"type": "memory", "columns": {"*.*.email": "hash"}, "salt": SALT})
    bag, seen = a_table(NOTE, EMAIL), []

    class Looked(ShownDestination):
        def write_events(self, batch: Batch) -> None:
            frames = [self._view(each.schema).changes(each).rows.frame() for each in batch.tables]
            seen.extend(frame._jdf.queryExecution().toString() for frame in frames)

    destination = Looked(place.opened(), Showing.configured(config), salt_of(config))
    destination.write_events(a_batch(bag_changes(spark, bag, (("x", "a@x"), 1))))

    pads = [bytes(byte ^ pad for byte in SALT.encode()) for pad in (0x36, 0x5C)]
    assert "sha2" in seen[0]
    assert not [pad for pad in (*pads, SALT.encode()) if pad.hex() in seen[0].lower() or repr(pad) in seen[0]]
