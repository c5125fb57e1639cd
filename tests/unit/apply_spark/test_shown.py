"""What leaves the decorator of destinations: names, shapes, values and progress, seen by whoever stands behind it."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from apply_spark.config import DestinationConfig, Treatment
from apply_spark.destination import Alteration, Batch, TableChanges
from apply_spark.errors import NotHeld, TableFailed
from apply_spark.progress import Progress, TableProgress
from apply_spark.rows import ArrowRows, Rows
from apply_spark.showing import Showing
from apply_spark.shown import ShownDestination
from schemas.evolution import changes as changes_between
from schemas.identifiers import DestinationName, Epoch, LogId, SchemaId, TableName
from schemas.lsn import Lsn
from schemas.phases import DataSync, Init, Phase, Ready
from schemas.table import Column, TableSchema
from tests.support.builders import INT8, a_column, a_table

BYTEA, BOOL, DATE, INT8_ARRAY = 17, 16, 1082, 1016
NO_SPARK = cast("SparkSession", None)
"""Rows that are whole are not Spark's affair."""
ID, NOTE = a_column("id", INT8, key=True, number=1), a_column("note", number=2)
PEOPLE = a_table(ID, NOTE, a_column("email", number=3, missing="default secret"))


class Recorder:
    """A destination that tells whatever it was given."""

    name = DestinationName("lake")

    def __init__(self) -> None:
        self.stored: Progress | None = None
        self.schemas: list[TableSchema] = []
        self.rows: list[list[dict[str, Any]]] = []
        self.altered: list[Alteration] = []
        self.error: TableFailed | None = None

    def startup(self) -> Progress | None:
        return self.stored

    def shutdown(self) -> None:
        """Nothing is held."""

    def drop_table_for_copy(self, schema: TableSchema, progress: Progress) -> None:
        self._take(progress, schema)

    def write_table_rows(self, schema: TableSchema, rows: Rows, progress: Progress) -> None:
        self._take(progress, schema, rows)

    def write_events(self, batch: Batch) -> None:
        self.altered += batch.altered
        for changes in batch.tables:
            self._take(batch.progress, changes.schema, changes.rows)
        self.save_progress(batch.progress)

    def save_progress(self, progress: Progress) -> None:
        self.stored = Progress.restored(tuple(progress.stored()[0]), progress.stored()[1][2])
        if self.error is not None:
            raise self.error

    def _take(self, progress: Progress, schema: TableSchema, *rows: Rows) -> None:
        self.schemas.append(schema)
        self.rows += [each.arrow().to_pylist() for each in rows]
        self.save_progress(progress)

    def everything(self) -> str:
        stored = self.stored.stored() if self.stored is not None else None
        return repr((self.schemas, self.rows, self.altered, stored))


def shown(recorder: Recorder, salt: str | None = None, **settings: object) -> ShownDestination:
    config = DestinationConfig.model_validate({"type": "memory", **settings})
    return ShownDestination(recorder, Showing.configured(config), salt.encode() if salt else b"")


def a_progress(*tables: TableName, phase: Phase = Ready()) -> Progress:  # noqa: B008 -- a constant
    found = [TableProgress(table, phase, Lsn(1), SchemaId(2), Lsn(3), Epoch(4), 5, 6) for table in tables]
    return Progress(LogId("log"), Lsn(3), Epoch(4), 5, 0, {table.table: table for table in found})


def images(schema: TableSchema, rows: list[dict[str, Any] | None], *, key: bool = False) -> pa.Array:
    kinds = {INT8: pa.int64(), BYTEA: pa.binary(), BOOL: pa.bool_()}
    columns = schema.key if key else schema.columns
    return pa.array(rows, pa.struct([(column.name, kinds.get(column.type_oid, pa.string())) for column in columns]))


def changes(schema: TableSchema, *rows: dict[str, Any], gone: tuple[dict[str, Any], ...] = ()) -> TableChanges:
    names = [column.name for column in schema.key]
    keys = [{name: row[name] for name in names} for row in (*rows, *gone)]
    table = pa.table(
        {
            "deleted": [False] * len(rows) + [True] * len(gone),
            "key": images(schema, keys, key=True),
            "row": images(schema, [*rows, *[None] * len(gone)]),
        }
    )
    return TableChanges(schema, truncate=False, rows=ArrowRows(NO_SPARK, table), partial=False)


def copied(schema: TableSchema, *rows: dict[str, Any]) -> ArrowRows:
    return ArrowRows(NO_SPARK, pa.table({"row": images(schema, list(rows))}))


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


SECRET = st.text(st.characters(categories=["L", "N"]), min_size=3).map(lambda text: f"secret {text}")


@given(st.data())
def test_no_masked_value_leaves_in_any_column_of_any_call(data: st.DataObject) -> None:
    types = {"text": 25, "int": INT8, "bytes": BYTEA}
    kinds = data.draw(st.lists(st.sampled_from(sorted(types)), min_size=2, max_size=5))
    columns = [a_column(f"c{n}", types[kind], key=n == 0, number=n + 1) for n, kind in enumerate(kinds)]
    allowed = [["hash"], *[["hash", "null", "drop", "show"]] * (len(kinds) - 1)]
    how = {column.name: data.draw(st.sampled_from(few)) for column, few in zip(columns, allowed, strict=True)}
    rows: list[dict[str, Any]] = []
    secrets: set[str] = set()
    for _ in range(data.draw(st.integers(1, 4))):
        row: dict[str, Any] = {}
        for column, kind in zip(columns, kinds, strict=True):
            value = data.draw(st.integers(2**60, 2**61)) if kind == "int" else data.draw(SECRET)
            row[column.name] = value.encode() if kind == "bytes" and isinstance(value, str) else value
            if how[column.name] != "show":
                secrets.add(repr(row[column.name]).strip("b'\""))
        rows.append(row)
    visible = {repr(row[name]).strip("b'\"") for row in rows for name in row if how[name] == "show"}
    table = a_table(*columns)
    younger = a_column("late", number=len(columns) + 1, missing="secret default")
    after = a_table(*columns, younger)
    made = changes_between(table, after)
    assert made is not None
    recorder = Recorder()
    rules = {f"public.orders.{name}": each for name, each in how.items()}
    rules["*.*.late"] = data.draw(st.sampled_from(["hash", "null", "drop"]))
    destination = shown(recorder, data.draw(st.sampled_from([None, "s3cr3t"])), columns=rules)
    progress = a_progress(table.name)

    destination.drop_table_for_copy(table, progress)
    destination.write_table_rows(table, copied(table, *rows), progress)
    destination.write_events(Batch((changes(table, *rows, gone=tuple(rows)),), progress))
    destination.write_events(Batch((), progress, (Alteration(table, after, tuple(made)),)))

    seen = recorder.everything()
    assert not [secret for secret in (secrets | {"secret default"}) - visible if secret in seen]
    assert [len(each) for each in recorder.rows] == [len(rows), 2 * len(rows)]


@pytest.mark.parametrize("salt", [None, "s3cr3t", "long " * 20])
def test_a_hash_is_that_of_the_text_in_row_and_key_and_of_a_default(salt: str | None) -> None:
    columns = [
        *[a_column("id", INT8, key=True, number=1), a_column("name", key=True, number=2)],
        *[a_column("photo", BYTEA, number=3), a_column("old", BOOL, number=4, missing="t")],
    ]
    table, recorder = a_table(*columns), Recorder()
    destination = shown(recorder, salt, columns={"public.orders.*": "hash"})
    row = {"id": 7, "name": "Ä b", "photo": b"\x00\xff", "old": None}

    destination.write_table_rows(table, copied(table, row), a_progress(table.name))
    destination.write_events(Batch((changes(table, row, gone=(row,)),), a_progress(table.name)))

    def hashed(text: str) -> str:
        return hmac.new(salt.encode(), text.encode(), "sha256").hexdigest() if salt else sha(text)

    key = {"id": hashed("7"), "name": hashed("Ä b")}
    whole = {**key, "photo": hashed(r"\x00ff"), "old": None}
    assert recorder.rows[0] == [{"row": whole}]
    assert recorder.rows[1] == [
        {"deleted": False, "key": key, "row": whole},
        {"deleted": True, "key": key, "row": None},
    ]
    assert [column.missing for column in recorder.schemas[0].columns] == [None, None, None, hashed("true")]
    assert {(column.type_oid, column.type_name, column.modifier) for column in recorder.schemas[0].columns} == {
        (25, "text", -1)
    }


def test_nulls_and_no_rows_at_all_are_mapped_as_well() -> None:
    recorder = Recorder()
    destination = shown(recorder, columns={"*.*.email": "hash", "*.*.note": "null"})

    destination.write_table_rows(PEOPLE, copied(PEOPLE), a_progress(PEOPLE.name))
    destination.write_table_rows(PEOPLE, copied(PEOPLE, {"id": 1, "note": "x"}), a_progress(PEOPLE.name))

    assert recorder.rows == [[], [{"row": {"id": 1, "note": None, "email": None}}]]


@pytest.mark.parametrize(
    ("column", "how", "word"),
    [
        (ID, Treatment.DROP, "part of the key"),
        (ID, Treatment.NULL, "part of the key"),
        (a_column("born", DATE), Treatment.HASH, "date"),
        (a_column("all", INT8_ARRAY), Treatment.HASH, r"int8\[\]"),
    ],
)
def test_what_cannot_be_hidden_stops_the_table(column: Column, how: Treatment, word: str) -> None:
    table = a_table(column, NOTE)
    destination = shown(Recorder(), columns={f"public.orders.{column.name}": how})

    with pytest.raises(TableFailed, match=word) as caught:
        destination.drop_table_for_copy(table, a_progress(table.name))

    assert "rollback" in caught.value.solution


def test_a_table_of_which_nothing_is_left_and_a_rule_without_a_column_stop_it() -> None:
    bag = a_table(NOTE)

    with pytest.raises(TableFailed, match="nothing of it is left"):
        shown(Recorder(), columns={"*.*.*": "drop"}).drop_table_for_copy(bag, a_progress(bag.name))
    with pytest.raises(TableFailed, match="no column emial"):
        shown(Recorder(), columns={"public.orders.emial": "hash"}).drop_table_for_copy(bag, a_progress(bag.name))


def test_a_column_that_would_be_shown_otherwise_under_its_new_name_stops_the_table() -> None:
    after = a_table(ID, NOTE, replace(PEOPLE.columns[2], name="mail"))
    made = changes_between(PEOPLE, after)
    assert made is not None
    recorder = Recorder()

    for how in ("show", "null", "drop"):
        destination = shown(recorder, columns={"*.*.email": "hash", "*.*.mail": how})
        with pytest.raises(TableFailed, match="shown in another way") as caught:
            destination.write_events(Batch((), a_progress(PEOPLE.name), (Alteration(PEOPLE, after, tuple(made)),)))
        assert "default secret" not in repr(caught.value) + caught.value.solution
    shown(recorder, columns={"*.*.*mail": "hash"}).write_events(
        Batch((), a_progress(PEOPLE.name), (Alteration(PEOPLE, after, tuple(made)),))
    )

    (altered,) = recorder.altered
    assert [(column.name, column.type_name) for column in altered.after.columns][2] == ("mail", "text")
    assert len(altered.changes) == 1


def test_the_destination_knows_its_own_names_and_everybody_else_the_source_s() -> None:
    recorder = Recorder()
    destination = shown(recorder, rename={"public": "shop", "public.orders": "shop.sales"})
    progress = replace(a_progress(PEOPLE.name, TableName("public", "items"), TableName("a", "b")), showing="told")

    destination.drop_table_for_copy(PEOPLE, progress)
    recorder.error = TableFailed(TableName("shop", "sales"), NotHeld("No.", solution="Try `resync shop.sales`."))
    recorder.error.written = (progress.tables[TableName("a", "b")],)
    with pytest.raises(TableFailed) as caught:
        destination.save_progress(progress)
    with pytest.raises(TableFailed) as caught:
        destination.write_events(Batch((), progress))

    assert recorder.schemas[0].name == TableName("shop", "sales")
    assert recorder.stored is not None
    assert set(recorder.stored.tables) == {("shop", "sales"), ("shop", "items"), ("a", "b")}
    assert shown(recorder).startup() == progress
    assert caught.value.table == PEOPLE.name
    assert caught.value.solution == "Try `resync public.orders`."


def test_two_tables_of_one_name_stop_the_second_and_both_are_remembered() -> None:
    first, second = TableName("a", "orders"), TableName("b", "orders")
    recorder = Recorder()
    destination = shown(recorder, rename={"a": "shop", "b": "shop"})
    both = a_progress(first, second, phase=Init())
    begun = both.with_tables(replace(both.tables[first], phase=DataSync()))

    destination.drop_table_for_copy(replace(PEOPLE, name=first), begun)
    also = begun.with_tables(replace(both.tables[second], phase=DataSync()))
    with pytest.raises(TableFailed, match=r"shop\.orders here, as a\.orders is") as caught:
        destination.drop_table_for_copy(replace(PEOPLE, name=second), also)

    assert caught.value.table == second
    assert destination.startup() == begun
