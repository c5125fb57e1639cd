"""What the markers of a checkpoint do to the progress of their tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from apply_spark.intervals import Interval
from apply_spark.markers import marked
from apply_spark.progress import Progress, ShapeAhead, TableProgress
from schemas.checkpoint import CopyFinished, CopyStarted, Marker, SchemaChanged, TableErrored, TableRemoved
from schemas.errors import Retry
from schemas.identifiers import Epoch, LogId, SchemaId, TableName
from schemas.lsn import NOWHERE, Lsn, Position
from schemas.phases import DataSync, Errored, Init, Phase, Ready

ORDERS, ITEMS = TableName("public", "orders"), TableName("public", "items")
STARTED = CopyStarted(ORDERS, SchemaId(6), Lsn(200), "16384:1", "f00d", changes_from=40, log_from=12)


def a_table(name: TableName = ORDERS, phase: Phase = Ready(), generation: int = 100) -> TableProgress:  # noqa: B008 -- a constant
    return TableProgress(
        table=name,
        phase=phase,
        generation=Lsn(generation),
        schema_id=SchemaId(5),
        lsn=Lsn(150),
        epoch=Epoch(1),
        log_offset=10,
        topic_offset=30,
        copied=3,
        copy_end=3,
        copy_rows=3,
    )


def after(markers: tuple[Marker, ...], *tables: TableProgress) -> tuple[dict[TableName, TableProgress], set[TableName]]:
    """The tables with the markers taken in, and those that are still level with the destination."""
    progress = Progress(LogId("log"), Lsn(150), Epoch(1), 10, 0, {table.table: table for table in tables})
    interval = Interval(
        log_id=LogId("log"),
        epoch=Epoch(2),
        start=Lsn(150),
        lsn=Lsn(250),
        commit_ts=0,
        emitted_at=0,
        moved={},
        ends={},
        markers=markers,
        next_offset=11,
        opens=False,
    )
    level = {table.table for table in tables}
    return dict(marked(progress, interval, level).tables), level


def test_without_markers_nothing_changes() -> None:
    tables, level = after((), a_table())

    assert tables == {ORDERS: a_table()}
    assert level == {ORDERS}


def test_a_copy_that_starts_makes_the_table_known_at_its_snapshot() -> None:
    tables, level = after((STARTED,))

    assert tables == {
        ORDERS: TableProgress(
            table=ORDERS,
            phase=Init(),
            generation=Lsn(200),
            schema_id=SchemaId(6),
            lsn=Lsn(200),
            epoch=Epoch(2),
            log_offset=12,
            topic_offset=40,
            last_snapshot=Lsn(200),
        )
    }
    assert level == set()


def test_a_new_copy_begins_the_table_anew_and_leaves_the_others_alone() -> None:
    tables, level = after((STARTED,), a_table(), a_table(ITEMS))

    assert (tables[ORDERS].phase, tables[ORDERS].generation, tables[ORDERS].copied) == (Init(), 200, 0)
    assert tables[ORDERS].copy_end is None
    assert tables[ITEMS] == a_table(ITEMS)
    assert level == {ITEMS}


def test_the_shape_of_the_mirror_is_remembered_until_it_has_another_one() -> None:
    again = replace(STARTED, schema_id=SchemaId(7), generation=Lsn(210))

    first, _ = after((STARTED,), a_table())
    second, _ = after((STARTED, again), a_table())
    never, _ = after((STARTED, again))

    assert [each[ORDERS].mirrored for each in (first, second, never)] == [5, 5, None]


def test_a_table_that_stands_past_the_interval_took_its_markers_in_already() -> None:
    changed = SchemaChanged(ORDERS, Position(Lsn(200), 0), SchemaId(6), rewrite=False)
    past = replace(a_table(), log_offset=11, lsn=Lsn(250), schema_id=SchemaId(6))

    tables, _ = after((changed, replace(changed, table=ITEMS)), past, a_table(ITEMS))

    assert tables[ORDERS] == past
    assert tables[ITEMS].ahead == (ShapeAhead(changed.position, SchemaId(6)),)


def test_a_finished_copy_tells_where_it_ends() -> None:
    finished = CopyFinished(ORDERS, Lsn(200), rows=9, bytes=900, ends=(70,), last=Lsn(240))

    tables, _ = after((STARTED, finished))

    assert (tables[ORDERS].copy_end, tables[ORDERS].copy_rows, tables[ORDERS].last_snapshot) == (70, 9, 240)
    assert tables[ORDERS].phase == Init()


@pytest.mark.parametrize("tables", [(), (a_table(generation=300, phase=DataSync()),)], ids=["unknown", "newer"])
def test_the_end_of_another_generations_copy_is_not_this_ones(tables: tuple[TableProgress, ...]) -> None:
    finished = CopyFinished(ORDERS, Lsn(200), rows=9, bytes=900, ends=(70,), last=Lsn(240))

    now, level = after((finished,), *tables)

    assert tuple(now.values()) == tables
    assert level == {table.table for table in tables}


@pytest.mark.parametrize(("at", "held"), [(99, False), (100, True), (160, True)])
def test_a_change_of_shape_holds_the_table_unless_its_copy_is_newer(at: int, *, held: bool) -> None:
    tables, level = after((SchemaChanged(ORDERS, Position(Lsn(at), 0), SchemaId(6), rewrite=True),), a_table())

    waiting = replace(a_table(), phase=Init(), generation=NOWHERE, copy_end=None, mirrored=SchemaId(5))
    assert tables[ORDERS] == (waiting if held else a_table())
    assert level == (set() if held else {ORDERS})


def test_the_end_of_a_copy_that_is_told_after_a_change_of_shape_does_not_begin_it() -> None:
    """Capture had the end of the copy in its queue when the stream met the new shape."""
    changed = SchemaChanged(ORDERS, Position(Lsn(160), 0), SchemaId(6), rewrite=True)
    ended = CopyFinished(ORDERS, Lsn(100), rows=3, bytes=30, ends=(3,), last=Lsn(100))

    tables, _ = after((changed, ended), a_table(phase=Init()))

    assert (tables[ORDERS].phase, tables[ORDERS].copy_end) == (Init(), None)


@pytest.mark.parametrize(("at", "known"), [(99, False), (100, True), (160, True)])
@pytest.mark.parametrize("phase", [Init(), DataSync(), Ready()])
def test_a_shape_that_touched_no_row_waits_for_its_position_unless_the_copy_is_newer(
    at: int, phase: Phase, *, known: bool
) -> None:
    table = a_table(phase=phase)
    first = ShapeAhead(Position(Lsn(at), 2), SchemaId(6))
    second = ShapeAhead(Position(Lsn(at), 4), SchemaId(7))
    markers = [SchemaChanged(ORDERS, each.position, each.schema_id, rewrite=False) for each in (first, second)]

    tables, level = after(tuple(markers), table)

    assert tables[ORDERS] == (replace(table, ahead=(first, second)) if known else table)
    assert level == {ORDERS}


def test_a_new_copy_has_no_shape_ahead() -> None:
    shape = SchemaChanged(ORDERS, Position(Lsn(160), 0), SchemaId(6), rewrite=False)

    tables, _ = after((shape, STARTED), a_table())

    assert tables[ORDERS].ahead == ()


@pytest.mark.parametrize(("at", "held"), [(99, False), (100, True), (160, True)])
def test_a_table_that_capture_stopped_is_errored_unless_its_copy_is_newer(at: int, *, held: bool) -> None:
    tables, level = after((TableErrored(ORDERS, Position(Lsn(at), 3), "why", "what to do"),), a_table())

    errored = Errored("why", "what to do", Retry.MANUAL, 1, Init())
    stopped = replace(a_table(), phase=errored, generation=NOWHERE, copy_end=None, mirrored=SchemaId(5))
    assert tables[ORDERS] == (stopped if held else a_table())
    assert level == (set() if held else {ORDERS})


def test_a_pause_outlives_a_new_copy_and_a_new_shape_and_what_was_skipped_does_not() -> None:
    paused = replace(a_table(), paused=True, skipped=(Position(Lsn(120), 0),))
    rewritten = SchemaChanged(ORDERS, Position(Lsn(160), 0), SchemaId(6), rewrite=True)

    waiting, _ = after((rewritten,), paused)
    copied, _ = after((rewritten, STARTED), paused)

    assert (waiting[ORDERS].phase, waiting[ORDERS].paused) == (Init(), True)
    assert (copied[ORDERS].generation, copied[ORDERS].paused, copied[ORDERS].skipped) == (200, True, ())


def test_a_removed_table_is_forgotten() -> None:
    tables, level = after((TableRemoved(ORDERS),), a_table(), a_table(ITEMS))

    assert tables == {ITEMS: a_table(ITEMS)}
    assert level == {ITEMS}


def test_a_table_that_was_stopped_and_copied_again_in_one_window_ends_with_the_copy() -> None:
    stopped = TableErrored(ORDERS, Position(Lsn(160), 0), "why", "what to do")

    tables, _ = after((stopped, STARTED), a_table())

    assert (tables[ORDERS].phase, tables[ORDERS].generation) == (Init(), 200)


@pytest.mark.parametrize(
    "marker",
    [
        SchemaChanged(ORDERS, Position(Lsn(160), 0), SchemaId(6), rewrite=False),
        TableErrored(ORDERS, Position(Lsn(160), 0), "why", "what to do"),
        TableRemoved(ORDERS),
    ],
    ids=lambda marker: type(marker).__name__,
)
def test_a_marker_about_a_table_that_this_destination_does_not_know_is_passed_over(marker: Marker) -> None:
    tables, _ = after((marker,), a_table(ITEMS))

    assert tables == {ITEMS: a_table(ITEMS)}
