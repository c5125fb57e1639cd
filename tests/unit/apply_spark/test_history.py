"""What the log tells of copies: which one holds a table at a moment, and why none does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from apply_spark.history import History, LoggedCopy, history
from apply_spark.progress import ShapeAhead
from schemas.checkpoint import (
    Checkpoint,
    CopyFinished,
    CopyStarted,
    Marker,
    Moved,
    SchemaChanged,
    TableErrored,
    TableRemoved,
)
from schemas.identifiers import Epoch, LogId, SchemaId, TableName
from schemas.lsn import Lsn, Position
from schemas.phases import Init

ORDERS, ITEMS = TableName("public", "orders"), TableName("public", "items")
STARTED = CopyStarted(ORDERS, SchemaId(6), Lsn(110), "16384:1", "f00d", changes_from=40, log_from=1)
FINISHED = CopyFinished(ORDERS, Lsn(110), rows=3, bytes=90, ends=(3,), last=Lsn(110))
AGAIN = replace(STARTED, generation=Lsn(310), log_from=3)


def log(*markers: tuple[Marker, ...], log_id: str = "log", first: int = 0) -> list[tuple[int, Checkpoint]]:
    """Windows of 100, from 100 on, each with its markers."""
    return [
        (
            first + place,
            Checkpoint(
                log_id=LogId(log_id),
                epoch=Epoch(7),
                opens=place == 0,
                start=Lsn(100 * (place + 1)),
                lsn=Lsn(100 * (place + 2)),
                commit_ts=place,
                emitted_at=place,
                moved=(Moved("shop.public.items", SchemaId(1), 1, 1),) if place else (),
                markers=each,
            ),
        )
        for place, each in enumerate(markers)
    ]


def told(*markers: tuple[Marker, ...], first: int = 0) -> History:
    found = history(log(*markers, first=first))
    assert found is not None
    return found


def copy_at(found: History, lsn: int) -> LoggedCopy:
    copy = found.copy_at(ORDERS, Lsn(lsn))
    assert copy is not None
    return copy


def test_an_empty_log_has_no_history() -> None:
    assert history([]) is None


def test_a_copy_holds_its_table_from_its_snapshot_on() -> None:
    found = told((STARTED,), (), (FINISHED,))

    assert found.copy_at(ORDERS, Lsn(109)) is None
    assert copy_at(found, 110).unreached(Lsn(110)) is None
    assert copy_at(found, 500).unreached(Lsn(500)) is None


def test_a_table_begins_at_its_copy_with_the_shapes_that_come_before_the_end() -> None:
    soon, late = (SchemaChanged(ORDERS, Position(Lsn(lsn), 1), SchemaId(lsn), rewrite=False) for lsn in (220, 330))
    early = SchemaChanged(ORDERS, Position(Lsn(105), 1), SchemaId(105), rewrite=False)

    begun = copy_at(told((STARTED,), (FINISHED, early, soon), (late,)), 330).begun(Lsn(330))

    assert begun.ahead == (ShapeAhead(Position(Lsn(220), 1), SchemaId(220)),)
    assert (begun.phase, begun.lsn, begun.generation, begun.last_snapshot) == (Init(), 110, 110, 110)
    assert (begun.copy_end, begun.copy_rows, begun.copy_bytes) == (3, 3, 90)
    assert (begun.log_offset, begun.topic_offset, begun.epoch) == (1, 40, 7)


def test_the_newest_copy_that_was_begun_by_then_is_taken_even_if_it_is_not_complete() -> None:
    found = told((STARTED,), (FINISHED,), (AGAIN,))

    assert copy_at(found, 309).generation == 110
    assert copy_at(found, 310).generation == 310
    assert copy_at(found, 310).unreached(Lsn(310)) == "Its copy, begun at 0/136, is not complete on Kafka."


def test_a_copy_that_was_interrupted_holds_from_its_newest_snapshot_on() -> None:
    copy = copy_at(told((STARTED,), (replace(FINISHED, last=Lsn(250)),)), 249)

    assert copy.unreached(Lsn(249)) == "Its copy, begun at 0/6E, was interrupted: it holds from 0/FA on."
    assert copy.unreached(Lsn(250)) is None


@pytest.mark.parametrize(
    ("marker", "end", "why"),
    [
        (SchemaChanged(ORDERS, Position(Lsn(250), 0), SchemaId(1), rewrite=True), 250, "its rows were rewritten"),
        (TableErrored(ORDERS, Position(Lsn(250), 0), "too large", "?"), 250, "capture stopped it (too large)"),
        (TableRemoved(ORDERS), 300, "it left the publication"),
    ],
)
def test_what_ends_a_copy_leaves_what_was_before_it(marker: Marker, end: int, why: str) -> None:
    copy = copy_at(told((STARTED,), (FINISHED,), (marker,)), 900)

    assert copy.unreached(Lsn(end)) is None
    assert (copy.unreached(Lsn(end + 1)) or "").endswith(f"holds up to {Lsn(end)} only: there {why}.")


def test_a_table_that_left_is_gone_until_it_comes_back() -> None:
    back = replace(STARTED, generation=Lsn(410))
    found = told((STARTED,), (FINISHED,), (TableRemoved(ORDERS), TableRemoved(ITEMS)), (back,))

    gone = {lsn: found.is_gone(ORDERS, Lsn(lsn)) for lsn in (299, 300, 409, 410)}

    assert gone == {299: False, 300: True, 409: True, 410: False}
    assert found.is_gone(ITEMS, Lsn(900))


def test_only_the_newest_log_counts_and_its_beginning_is_known() -> None:
    found = history([*log((STARTED,), (FINISHED,), first=8), *log((), (), log_id="new", first=10)])

    assert found is not None
    assert (found.log_id, found.first_offset, found.copies) == ("new", 10, {})
    assert found.whole
    assert not told((), first=8).whole
    assert told((), first=0).whole
