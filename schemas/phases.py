"""The life of one table at one destination, as values, with the allowed transitions.

    Init -> DataSync -> FinishedCopy -> SyncWait -> Catchup -> SyncDone -> Ready
      ^         |             |                                   |          |
      '---------'-------------'------ a new generation -----------'----------'

Every phase may become Errored; Errored goes back to the phase it was held in (rollback, timed retry) or to Init
(resync).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, TypeAlias, assert_never

from schemas.errors import PenstockError, Retry
from schemas.lsn import Lsn


@dataclass(frozen=True, slots=True)
class Init:
    """Known, nothing copied."""


@dataclass(frozen=True, slots=True)
class DataSync:
    """The copy topic is being applied."""


@dataclass(frozen=True, slots=True)
class FinishedCopy:
    """The copy topic is applied to its end."""


@dataclass(frozen=True, slots=True)
class SyncWait:
    """Waits for the next checkpoint to aim at. Not stored: after a restart it is FinishedCopy again."""


@dataclass(frozen=True, slots=True)
class Catchup:
    """The intervals between the copy and `lsn` are being applied. Not stored."""

    lsn: Lsn


@dataclass(frozen=True, slots=True)
class SyncDone:
    """Caught up to `lsn`, not yet level with the other tables."""

    lsn: Lsn


@dataclass(frozen=True, slots=True)
class Ready:
    """At the destination's own LSN; moves with all others."""


@dataclass(frozen=True, slots=True)
class Errored:
    """Held where it stands; the other tables go on."""

    reason: str
    solution: str
    retry: Retry
    attempt: int
    """How often in a row the table has failed; 0 where it was not an error that holds it."""
    held: StoredPhase
    next_try: int | None = None
    """When it is tried again by itself, in microseconds since 1970. None: never."""


StoredPhase: TypeAlias = Init | DataSync | FinishedCopy | SyncDone | Ready
Phase: TypeAlias = StoredPhase | SyncWait | Catchup | Errored

_NEXT: dict[type, set[type]] = {
    Init: {DataSync, Errored},
    DataSync: {FinishedCopy, Errored, Init},
    FinishedCopy: {SyncWait, Errored, Init},
    SyncWait: {Catchup, Errored, Init},
    Catchup: {SyncDone, Errored, Init},
    SyncDone: {Ready, Catchup, Errored, Init},
    Ready: {Errored, Init},
    Errored: {Init, DataSync, FinishedCopy, SyncDone, Ready, Errored},
}


class ForbiddenTransition(PenstockError):
    """A table cannot go from one phase to the other."""

    solution = "This is a defect of penstock: please report it with the log of this process."


def advance(now: Phase, to: Phase) -> Phase:
    """Returns `to` where the table above allows it; a phase may always be written again as it is."""
    if type(to) not in _NEXT[type(now)] and now != to:
        raise ForbiddenTransition(f"A table cannot go from {type(now).__name__} to {type(to).__name__}.")
    return to


def is_stored(phase: Phase) -> bool:
    return not isinstance(phase, SyncWait | Catchup)


def phase_to_json(phase: Phase) -> dict[str, Any]:
    name = type(phase).__name__
    match phase:
        case Ready() | Init() | DataSync() | FinishedCopy() | SyncWait():
            return {"phase": name}
        case SyncDone(lsn=lsn) | Catchup(lsn=lsn):
            return {"phase": name, "lsn": str(lsn)}
        case Errored(held=held, retry=retry):
            return {"phase": name, **asdict(phase), "retry": retry.value, "held": phase_to_json(held)}
        case _:
            assert_never(phase)


def phase_from_json(data: dict[str, Any]) -> Phase:
    match data["phase"]:
        case "SyncDone":
            return SyncDone(Lsn.parse(data["lsn"]))
        case "Catchup":
            return Catchup(Lsn.parse(data["lsn"]))
        case "Errored":
            match phase_from_json(data["held"]):
                case SyncWait() | Catchup() | Errored() as other:
                    raise ValueError(f"a table cannot be held in {type(other).__name__}")
                case held:
                    retry, next_try = Retry(data["retry"]), data.get("next_try")
                    return Errored(data["reason"], data["solution"], retry, data["attempt"], held, next_try)
        case name:
            return _PLAIN[name]()


_PLAIN: dict[str, type[Init | DataSync | FinishedCopy | SyncWait | Ready]] = {
    plain.__name__: plain for plain in (Init, DataSync, FinishedCopy, SyncWait, Ready)
}
