"""What leaves the decorator that keeps more than rows: shapes, copied rows and the log, where no Spark is needed."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from apply_spark.change_log import logged
from apply_spark.config import DestinationConfig, Mode, Treatment
from apply_spark.destination import Alteration, Batch
from apply_spark.errors import TableFailed
from apply_spark.kept_destination import KeptDestination
from apply_spark.modes import OPEN, kept_schema, own_columns
from apply_spark.rows import ArrowRows
from apply_spark.showing import Showing
from apply_spark.shown import ShownDestination
from schemas.evolution import ColumnAdded
from schemas.evolution import changes as changes_between
from tests.support.builders import INT8, a_column, a_table
from tests.unit.apply_spark.test_shown import ID, NO_SPARK, NOTE, PEOPLE, Recorder, a_progress, copied, images

MODES = [mode for mode in Mode if mode is not Mode.MIRROR]
LATE = a_column("late", number=4, missing="x")


def names(mode: Mode) -> list[str]:
    return [column.name for column in own_columns(mode)]


def kept(recorder: Recorder, mode: Mode, **settings: object) -> KeptDestination:
    config = DestinationConfig.model_validate({"type": "memory", "mode": mode.value, **settings})
    return KeptDestination(ShownDestination(recorder, Showing.configured(config), b""), mode)


@pytest.mark.parametrize(
    ("mode", "own"),
    [
        (Mode.SOFT_DELETE, [False, 1, None]),
        (Mode.HISTORY, [None, None, 1, OPEN]),
        (Mode.LOG, ["r", 1, None, None, {"member0": [], "member1": None}]),
    ],
)
def test_a_copied_row_says_that_it_was_copied_and_is_masked_as_any_other(mode: Mode, own: list[object]) -> None:
    recorder, progress = Recorder(), a_progress(PEOPLE.name)
    destination = kept(recorder, mode, columns={"*.*.email": "null"})

    destination.drop_table_for_copy(PEOPLE, progress)
    destination.write_table_rows(PEOPLE, copied(PEOPLE, {"id": 7, "note": "n", "email": "secret"}), progress)

    assert [column.name for column in recorder.schemas[0].columns] == [*names(mode), "id", "note", "email"]
    (row,) = recorder.rows[0]
    assert list(row["row"].values()) == [*own, 7, "n", None]


def test_rules_for_all_columns_are_not_for_ours() -> None:
    recorder = Recorder()
    destination = kept(recorder, Mode.LOG, columns={"*.*._*": "drop", "*.*.note": "drop"})

    destination.drop_table_for_copy(PEOPLE, a_progress(PEOPLE.name))

    assert [column.name for column in recorder.schemas[0].columns] == [*names(Mode.LOG), "id", "email"]


@pytest.mark.parametrize("mode", MODES)
def test_a_new_column_stands_behind_all_others(mode: Mode) -> None:
    recorder, table = Recorder(), replace(a_table(ID, NOTE), width=3)
    after = replace(table, columns=(*table.columns, LATE), width=4)
    changes = changes_between(table, after)
    assert changes is not None

    kept(recorder, mode).write_events(Batch((), a_progress(table.name), (Alteration(table, after, tuple(changes)),)))

    (altered,) = recorder.altered
    assert [change.column.name for change in altered.changes if isinstance(change, ColumnAdded)] == ["late"]
    assert [column.name for column in altered.after.columns] == [*names(mode), "id", "note", "late"]


@pytest.mark.parametrize("mode", [Mode.SOFT_DELETE, Mode.HISTORY])
def test_a_table_without_a_key_is_refused_with_a_solution(mode: Mode) -> None:
    with pytest.raises(TableFailed, match="has no key") as refused:
        kept_schema(mode, a_table(a_column("note")))

    assert 'mode = "log"' in refused.value.solution


@pytest.mark.parametrize("mode", MODES)
def test_a_name_that_is_ours_is_refused_also_where_a_column_is_renamed_to_it(mode: Mode) -> None:
    name = names(mode)[1]
    table = a_table(ID, a_column("x", INT8, number=2))
    renamed = replace(table, columns=(ID, a_column(name.upper(), INT8, number=2)))

    with pytest.raises(TableFailed, match=f"column {name.upper()} has the name") as refused:
        kept(Recorder(), mode).write_events(Batch((), a_progress(table.name), (Alteration(table, renamed, ()),)))

    assert "Rename the column" in refused.value.solution


def test_every_change_is_a_row_of_the_log_in_the_order_in_which_they_happened() -> None:
    table = a_table(ID, NOTE)
    old, new = {"id": 1, "note": None}, {"id": 2, "note": "n"}
    records = pa.table(
        {
            "commit_lsn": pa.array([9, 5, 9], pa.int64()),
            "ordinal": pa.array([1, 0, 0], pa.int64()),
            "epoch": pa.array([1, 1, 1], pa.int64()),
            "ts_us": pa.array([90, 50, 90], pa.int64()),
            "op": ["d", "u", "t"],
            "before": images(table, [old, old, None]),
            "after": images(table, [None, new, None]),
            "unchanged": pa.array([[], ["note"], []], pa.list_(pa.string())),
        }
    )

    made = logged(ArrowRows(NO_SPARK, records), table, [])

    rows = [tuple(each["row"].values()) for each in made.rows.arrow().to_pylist()]
    assert [(*row[:4], row[4]["member0"], *row[5:]) for row in rows] == [
        ("u", 5, 0, 50, ["note"], 2, "n"),
        ("t", 9, 0, 90, [], None, None),
        ("d", 9, 1, 90, [], 1, None),
    ]
    assert made.rows.arrow()["net"].to_pylist() == [1, 1, 1]
    assert made.schema == kept_schema(Mode.LOG, table)


def test_another_mode_is_another_look_and_is_remembered() -> None:
    soft, log = Showing(mode=Mode.SOFT_DELETE), Showing(mode=Mode.LOG, columns={"*.*.email": Treatment.DROP})

    assert Showing.remembered(soft.told).look(PEOPLE) == soft.look(PEOPLE)
    assert Showing.remembered(log.told) == log
    assert soft.look(PEOPLE) != Showing.remembered("").look(PEOPLE)
    assert Showing().told == ""
    assert log.dropped(PEOPLE) == ["email"]
