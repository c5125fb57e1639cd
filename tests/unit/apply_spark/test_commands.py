"""What commands do to the progress of a table, and where they make no sense."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from apply_spark.commands import CommandRefused, commanded
from apply_spark.config import ApplyTuning
from apply_spark.destination import Destination
from apply_spark.destinations.memory import MemoryDestination
from apply_spark.errors import DestinationLocked, TableFailed
from apply_spark.feedback import NoFeedback
from apply_spark.micro_batch import Applier, Parts
from apply_spark.progress import Progress, TableProgress
from schemas.control import ApplyCommand, Pause, Resume, Rollback, Skip
from schemas.errors import Retry
from schemas.identifiers import DestinationName, TableName
from schemas.lsn import NOWHERE, Lsn, Position
from schemas.phases import DataSync, Errored, FinishedCopy, Init, Phase, Ready, StoredPhase, SyncDone
from tests.unit.apply_spark.test_progress import ORDERS, a_progress, a_table

AT = Position(Lsn(100), 3)


def an_errored(held: StoredPhase = Ready(), *, attempt: int = 4) -> Errored:  # noqa: B008 -- a constant
    return Errored("why", "what to do", Retry.TIMED, attempt, held, next_try=77)


def behind(phase: Phase, **changed: object) -> TableProgress:
    """A table that stands before the destination does."""
    return replace(a_table(phase=phase, log_offset=6, attempts=4, copy_end=9), **changed)  # type: ignore[arg-type]


def told(table: TableProgress, *commands: ApplyCommand) -> TableProgress:
    progress: Progress = a_progress(table)
    for command in commands:
        progress = commanded(progress, command)
    return progress.tables[ORDERS]


@pytest.mark.parametrize(
    ("held", "back"),
    [
        (Init(), Init()),
        (DataSync(), DataSync()),
        (FinishedCopy(), FinishedCopy()),
        (SyncDone(Lsn(90)), SyncDone(Lsn(90))),
        (Ready(), SyncDone(Lsn(100))),
    ],
    ids=lambda phase: type(phase).__name__,
)
def test_a_rolled_back_table_is_where_it_was_held_and_is_not_called_ready_before_it_has_caught_up(
    held: StoredPhase, back: Phase
) -> None:
    table = told(behind(an_errored(held)), Rollback(ORDERS))

    assert table == behind(back, attempts=0)


def test_a_table_that_missed_nothing_is_ready_at_once() -> None:
    assert told(a_table(phase=an_errored()), Rollback(ORDERS)).phase == Ready()
    assert told(a_table(phase=Ready()), Pause(ORDERS), Resume(ORDERS)) == a_table(phase=Ready())


def test_a_paused_table_is_held_whatever_its_phase_and_goes_on_from_there() -> None:
    paused = told(behind(FinishedCopy()), Pause(ORDERS))

    assert not paused.moves
    assert paused.shown == Errored("Paused.", "Run `penstock resume public.orders`.", Retry.MANUAL, 0, FinishedCopy())
    assert told(paused, Resume(ORDERS)) == behind(FinishedCopy())


def test_a_paused_table_that_moved_with_the_others_does_not_move() -> None:
    assert not told(a_table(phase=Ready()), Pause(ORDERS)).moves


def test_a_table_that_was_held_by_an_error_is_held_by_it_after_a_pause() -> None:
    paused = told(behind(an_errored()), Pause(ORDERS))

    assert isinstance(paused.shown, Errored)
    assert paused.shown.reason == "Paused. Before that: why"
    assert told(paused, Resume(ORDERS)) == behind(an_errored())


def test_a_rollback_of_a_paused_table_takes_the_error_away_and_not_the_pause() -> None:
    table = told(behind(an_errored(), paused=True), Rollback(ORDERS))

    assert (table.phase, table.paused) == (SyncDone(Lsn(100)), True)


def test_what_was_skipped_is_remembered_and_the_table_tries_again() -> None:
    table = told(behind(an_errored(), skipped=(Position(Lsn(60), 0),)), Skip(ORDERS, AT))

    assert table == behind(SyncDone(Lsn(100)), attempts=0, skipped=(Position(Lsn(60), 0), AT))


@pytest.mark.parametrize(
    ("table", "command", "why"),
    [
        (a_table(), Rollback(TableName("public", "nobody")), "public.nobody is not known"),
        (a_table(phase=Ready()), Rollback(ORDERS), "not held by an error"),
        (a_table(phase=Ready(), paused=True), Rollback(ORDERS), "not held by an error"),
        (a_table(phase=an_errored(Init()), generation=NOWHERE), Rollback(ORDERS), "stopped by capture"),
        (a_table(paused=True), Pause(ORDERS), "paused already"),
        (a_table(phase=an_errored()), Resume(ORDERS), "not paused"),
        (a_table(phase=Ready()), Skip(ORDERS, AT), "not held by an error"),
        (a_table(phase=an_errored()), Skip(ORDERS, Position(Lsn(99), 0)), "is not what holds it"),
        (a_table(phase=an_errored(DataSync())), Skip(ORDERS, AT), "in the phase DataSync"),
    ],
)
def test_a_command_that_makes_no_sense_is_refused_with_a_reason(
    table: TableProgress, command: ApplyCommand, why: str
) -> None:
    with pytest.raises(CommandRefused, match=why):
        commanded(a_progress(table), command)


class HeldMirror(MemoryDestination):
    """The mirror of a table cannot be replaced while somebody reads it."""

    def save_progress(self, progress: Progress) -> None:
        if progress.tables[ORDERS].phase == Ready():
            raise TableFailed(ORDERS, DestinationLocked("Somebody reads its mirror.", solution="Wait."))
        super().save_progress(progress)


def test_a_table_that_a_command_makes_ready_is_held_again_if_its_new_copy_cannot_take_its_place() -> None:
    destination = HeldMirror(DestinationName("lake"), {})
    parts = Parts(*cast(Any, (None,) * 6), NoFeedback(), ApplyTuning())
    applier = Applier(cast(Destination, destination), a_progress(a_table(phase=an_errored())), parts)

    applier.obey(0, Rollback(ORDERS))

    assert applier.progress is not None
    held = applier.progress.tables[ORDERS].phase
    assert isinstance(held, Errored)
    assert held.reason == "Table public.orders: Somebody reads its mirror."
    stored = destination.startup()
    assert stored is not None
    assert (stored.control, stored.tables) == (1, applier.progress.tables)
