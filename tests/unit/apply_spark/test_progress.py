"""How far a destination is: what is stored is what is read, and when a table is Ready."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apply_spark.progress import Progress, ShapeAhead, TableProgress
from schemas.errors import Retry, StateTooNew
from schemas.identifiers import Epoch, LogId, SchemaId, TableName
from schemas.lsn import Lsn, Position
from schemas.phases import Catchup, DataSync, Errored, FinishedCopy, Init, Phase, Ready, SyncDone, SyncWait

ORDERS = TableName("public", "orders")
LSNS = st.integers(0, 2**64 - 1).map(Lsn)
LONGS = st.integers(0, 2**63 - 1)
STORED = st.sampled_from([Init(), DataSync(), FinishedCopy(), Ready()]) | st.builds(SyncDone, LSNS)
TABLES = st.builds(
    TableProgress,
    table=st.builds(TableName, st.text(), st.text()),
    phase=STORED
    | st.builds(Errored, st.text(), st.text(), st.sampled_from(Retry), st.integers(1, 99), STORED, st.none() | LONGS),
    generation=LSNS,
    schema_id=st.integers(0, 2**31 - 1).map(SchemaId),
    lsn=LSNS,
    epoch=LONGS.map(Epoch),
    log_offset=LONGS,
    topic_offset=LONGS,
    copy_offset=LONGS,
    copied=LONGS,
    copy_end=st.none() | LONGS,
    copy_rows=LONGS,
    last_snapshot=LSNS,
    ahead=st.lists(st.builds(ShapeAhead, st.builds(Position, LSNS, LONGS), LONGS.map(SchemaId)), max_size=3).map(tuple),
    attempts=LONGS,
    paused=st.booleans(),
    skipped=st.lists(st.builds(Position, LSNS, LONGS), max_size=3).map(tuple),
)


def a_table(**changed: Any) -> TableProgress:  # noqa: ANN401 -- fields of a table
    fields: dict[str, Any] = {
        "table": ORDERS,
        "phase": SyncDone(Lsn(90)),
        "generation": Lsn(10),
        "schema_id": SchemaId(5),
        "lsn": Lsn(100),
        "epoch": Epoch(1),
        "log_offset": 7,
        "topic_offset": 3,
        "last_snapshot": Lsn(50),
    }
    return TableProgress(**(fields | changed))


@pytest.mark.parametrize(("paused", "phase"), [(False, SyncDone(Lsn(100))), (True, Ready())])
def test_a_table_that_the_destination_has_passed_is_ready_no_longer_unless_it_was_told_to_stand_still(
    paused: bool,  # noqa: FBT001 -- pytest calls it so
    phase: Phase,
) -> None:
    passed = a_table(phase=Ready(), paused=paused)

    after = Progress(LogId("log"), Lsn(120), Epoch(1), 8, 0, {ORDERS: passed}).levelled()

    assert after.tables[ORDERS].phase == phase


def a_progress(*tables: TableProgress, lsn: int = 100, log_offset: int = 7) -> Progress:
    return Progress(LogId("log"), Lsn(lsn), Epoch(1), log_offset, 0, {table.table: table for table in tables})


@given(TABLES)
def test_a_table_comes_back_from_json_as_it_was(table: TableProgress) -> None:
    again = TableProgress.from_json(table.to_json())

    assert again == table
    assert isinstance(again.lsn, Lsn)
    assert isinstance(again.generation, Lsn)
    assert isinstance(again.last_snapshot, Lsn)
    assert isinstance(again.table, TableName)


@given(st.lists(TABLES, min_size=1, max_size=3), st.none() | LONGS)
def test_a_destination_comes_back_as_it_was_stored_with_the_commands_that_are_done(
    tables: list[TableProgress], control: int | None
) -> None:
    progress = replace(a_progress(*tables), control=control)

    head, (_, _, texts) = progress.stored()

    assert Progress.restored(tuple(head), texts) == progress


def test_what_the_version_before_has_stored_is_read() -> None:
    errored = a_table(phase=Errored("why", "what", Retry.MANUAL, 1, Ready()))
    fields = json.loads(errored.to_json())
    for name in ("attempts", "paused", "skipped"):
        del fields[name]
    del fields["phase"]["next_try"]
    head, _ = a_progress(errored).stored()

    restored = Progress.restored(tuple(head), [json.dumps(fields)])

    assert restored == a_progress(errored)
    assert restored.control is None


def test_a_caught_up_table_that_stands_where_the_destination_stands_is_ready() -> None:
    levelled = a_progress(a_table()).levelled()

    assert levelled.tables[ORDERS] == a_table(phase=Ready())


@pytest.mark.parametrize(
    "table",
    [
        a_table(log_offset=6),
        a_table(lsn=Lsn(99)),
        a_table(lsn=Lsn(101)),
        a_table(last_snapshot=Lsn(101)),
        a_table(phase=Init()),
        a_table(phase=DataSync()),
        a_table(phase=FinishedCopy()),
        a_table(phase=Errored("why", "what", Retry.MANUAL, 1, SyncDone(Lsn(90)))),
    ],
    ids=["behind in the log", "behind", "ahead", "below its last snapshot", "Init", "DataSync", "copied", "Errored"],
)
def test_every_other_table_stays_what_it_is(table: TableProgress) -> None:
    progress = a_progress(table)

    assert progress.levelled() == progress


def test_a_table_exactly_at_its_last_snapshot_is_ready() -> None:
    levelled = a_progress(a_table(last_snapshot=Lsn(100))).levelled()

    assert levelled.tables[ORDERS].phase == Ready()


def test_levelling_one_table_leaves_the_others_alone() -> None:
    behind = a_table(table=TableName("public", "items"), log_offset=2)

    levelled = a_progress(a_table(), behind).levelled()

    assert [table.phase for table in levelled.tables.values()] == [Ready(), behind.phase]


@pytest.mark.parametrize(
    ("phase", "moves"),
    [
        (Ready(), True),
        (SyncDone(Lsn(1)), True),
        (Init(), False),
        (DataSync(), False),
        (FinishedCopy(), False),
        (SyncWait(), False),
        (Catchup(Lsn(1)), False),
        (Errored("why", "what", Retry.TIMED, 1, Ready()), False),
    ],
)
def test_only_tables_that_are_caught_up_take_part_in_intervals(phase: Phase, *, moves: bool) -> None:
    assert a_table(phase=phase).moves is moves


def test_an_errored_table_keeps_its_place() -> None:
    errored = Errored("why", "what", Retry.MANUAL, 1, SyncDone(Lsn(90)))

    progress = a_progress(a_table()).errored(ORDERS, errored)

    assert progress.tables[ORDERS] == replace(a_table(), phase=errored, attempts=1)


def test_changed_tables_replace_those_of_their_name_and_nothing_else() -> None:
    before = a_progress(a_table())
    other = a_table(table=TableName("public", "items"))

    after = before.with_tables(a_table(phase=Ready()), other)

    assert after.tables == {ORDERS: a_table(phase=Ready()), other.table: other}
    assert before.tables == {ORDERS: a_table()}


def test_a_fresh_destination_holds_nothing() -> None:
    assert Progress.fresh(LogId("log")) == Progress(LogId("log"), Lsn(0), None, 0, 0, {})


def test_what_is_shown_and_other_names_and_shapes_come_back_as_they_were_stored() -> None:
    table = replace(a_table(), mirrored=SchemaId(9), source=TableName("public", "source"))
    other = replace(a_table(), table=TableName("public", "showing"))
    progress = replace(a_progress(table, other), showing='{"tables":["*"]}')

    head, tables = progress.stored()

    assert Progress.restored(tuple(head), tables[2]) == progress


@pytest.mark.parametrize("newer", [{"format": 2}, {"later": None}])
def test_progress_of_a_newer_penstock_is_refused(newer: dict[str, Any]) -> None:
    stored = json.loads(a_table().to_json())

    with pytest.raises(StateTooNew, match="written by a newer penstock") as refused:
        TableProgress.from_json(json.dumps(stored | newer))

    assert "Upgrade this penstock" in refused.value.solution


def test_progress_from_before_there_was_a_format_is_read() -> None:
    stored = json.loads(a_table().to_json())
    del stored["format"]

    assert TableProgress.from_json(json.dumps(stored)) == a_table()
