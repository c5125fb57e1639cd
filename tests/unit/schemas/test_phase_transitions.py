from __future__ import annotations

import itertools
import json

import pytest

from schemas.errors import Retry
from schemas.lsn import Lsn
from schemas.phases import (
    Catchup,
    DataSync,
    Errored,
    FinishedCopy,
    ForbiddenTransition,
    Init,
    Phase,
    Ready,
    SyncDone,
    SyncWait,
    advance,
    is_stored,
    phase_from_json,
    phase_to_json,
)

HELD = Errored("The copy failed.", "Run `penstock resync`.", Retry.TIMED, 3, SyncDone(Lsn(7)))
PHASES: tuple[Phase, ...] = (
    *(Init(), DataSync(), FinishedCopy(), SyncWait(), Catchup(Lsn(5)), SyncDone(Lsn(6)), Ready(), HELD),
)
ALLOWED = {
    *("Init DataSync", "Init Errored"),
    *("DataSync FinishedCopy", "DataSync Init", "DataSync Errored"),
    *("FinishedCopy SyncWait", "FinishedCopy Init", "FinishedCopy Errored"),
    *("SyncWait Catchup", "SyncWait Init", "SyncWait Errored"),
    *("Catchup SyncDone", "Catchup Init", "Catchup Errored"),
    *("SyncDone Ready", "SyncDone Catchup", "SyncDone Init", "SyncDone Errored"),
    *("Ready Init", "Ready Errored"),
    *("Errored Init", "Errored DataSync", "Errored FinishedCopy", "Errored SyncDone", "Errored Ready"),
}


def _name(phase: Phase) -> str:
    return type(phase).__name__


@pytest.mark.parametrize(("now", "to"), list(itertools.permutations(PHASES, 2)), ids=_name)
def test_each_transition_is_allowed_or_refused_as_the_table_says(now: Phase, to: Phase) -> None:
    if f"{_name(now)} {_name(to)}" in ALLOWED:
        assert advance(now, to) is to
    else:
        with pytest.raises(ForbiddenTransition, match=f"from {_name(now)} to {_name(to)}"):
            advance(now, to)


@pytest.mark.parametrize("phase", PHASES, ids=_name)
def test_a_phase_may_be_written_again_as_it_is(phase: Phase) -> None:
    assert advance(phase, phase) is phase


def test_a_retry_that_failed_again_counts_its_attempt() -> None:
    again = Errored(HELD.reason, HELD.solution, HELD.retry, HELD.attempt + 1, HELD.held)

    assert advance(HELD, again) is again


@pytest.mark.parametrize("moved", [(SyncDone(Lsn(6)), SyncDone(Lsn(7))), (Catchup(Lsn(5)), Catchup(Lsn(9)))], ids=str)
def test_a_target_does_not_move_under_a_phase(moved: tuple[Phase, Phase]) -> None:
    with pytest.raises(ForbiddenTransition):
        advance(*moved)


@pytest.mark.parametrize("phase", PHASES, ids=_name)
def test_a_phase_survives_json(phase: Phase) -> None:
    assert phase_from_json(json.loads(json.dumps(phase_to_json(phase)))) == phase


@pytest.mark.parametrize("held", [SyncWait(), Catchup(Lsn(1)), HELD], ids=_name)
def test_a_table_cannot_be_held_in_a_phase_that_is_not_stored(held: Phase) -> None:
    data = {**phase_to_json(HELD), "held": phase_to_json(held)}

    with pytest.raises(ValueError, match=f"held in {_name(held)}"):
        phase_from_json(data)


def test_only_sync_wait_and_catchup_are_not_stored() -> None:
    assert [_name(phase) for phase in PHASES if not is_stored(phase)] == ["SyncWait", "Catchup"]
