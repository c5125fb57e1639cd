"""What can go wrong between Postgres and Kafka.

SourceError
|-- SourceUnreachable     no server, wrong password, connection lost      (timed)
|-- PublicationMissing    nothing to capture
|-- PartlyPublished       the publication withholds some operations
|-- PublicationTaken      `source.tables` is given, and somebody else made the publication
|-- StandbyRefused        the server is a standby, which cannot do what is asked
|-- TriggersRefused       the role may not install event triggers
|-- SlotInUse             another capture, or its dead walsender          (timed)
'-- SlotLost              WAL that we still need is gone
    '-- SourceChanged     another server, database or timeline
ValueNotCarried
'-- RecordTooLarge        a row larger than `kafka.max_record`
NurseryEnded              somebody ended the process that starts the workers of copies
"""

from __future__ import annotations

import psycopg

from schemas.errors import PenstockError, Retry, SourceError
from schemas.pg_types.pg_type import ValueNotCarried


class SourceUnreachable(SourceError):
    """Postgres does not answer, or stopped answering."""

    retry = Retry.TIMED
    solution = "Start the server, or correct `source.dsn` and the network between."


class SourceRefused(SourceError):
    """Postgres answered with an error."""


class PublicationMissing(SourceError):
    """The publication is not there."""


class PartlyPublished(SourceError):
    """The publication withholds some operations, so that no destination can be a mirror."""


class PublicationTaken(SourceError):
    """The publication is not ours to change."""


class StandbyRefused(SourceError):
    """A standby cannot decode before Postgres 16, make publications, or pass its slots on."""


class TriggersRefused(SourceError):
    """Event triggers are for superusers."""


class SlotInUse(SourceError):
    """Somebody else reads from the slot."""

    retry = Retry.TIMED
    solution = "Stop the other capture of this pipeline; if none runs, `select pg_terminate_backend(PID)`."


class SlotLost(SourceError):
    """The slot cannot give what comes after the last checkpoint."""

    resync = 'Set `capture.on_lost_slot = "resync"` and start again: every table is copied anew.'
    solution = f"{resync} Raise max_slot_wal_keep_size so that it does not happen again."


class SourceChanged(SlotLost):
    """The LSNs of the topics mean something else here, or nothing."""

    solution = f"Correct `source.dsn` if another server was meant. If it is the right one: {SlotLost.resync}"


class NurseryEnded(PenstockError):
    """No more copies can be begun: a process with threads cannot make another nursery."""

    solution = "Find out who ended it (the kernel, if memory is short), then start capture again: copies go on."


class RecordTooLarge(ValueNotCarried):
    """A row that makes a larger record than Kafka was told to take."""

    def __init__(self, size: int, largest: int) -> None:
        super().__init__(
            f"A row needs a record of {size:,} bytes; {largest:,} are allowed.",
            solution="Raise `kafka.max_record`, and max.message.bytes of the table's topics.",
        )


def source_error(error: psycopg.Error, what: str) -> SourceError:
    """The one place where Postgres's errors become ours. Messages of the server may hold row values: not repeated."""
    state = error.sqlstate
    if state is None or state.startswith(("08", "57P")):
        return SourceUnreachable(f"The connection to Postgres failed while {what}: {_first_line(error)}")
    if state == "55006":
        return SlotInUse(f"The slot is in use: {_first_line(error)}")
    if state.startswith(("22", "23")):
        return SourceRefused(f"Postgres refused {what} (SQLSTATE {state}).")
    if state == "42501":
        return SourceRefused(
            f"Postgres refused {what}: {_first_line(error)}.",
            solution="Grant it, such as `grant select on TABLE to ROLE;`. `penstock doctor` prints the statement.",
        )
    return SourceRefused(f"Postgres refused {what}: {_first_line(error)} (SQLSTATE {state}).")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
