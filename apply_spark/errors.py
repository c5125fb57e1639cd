"""What can go wrong between Kafka and a destination.

ConfigError
'-- DestinationNotInstalled   a module that the destination needs is missing
LogError
|-- RowsMissing           Kafka gave fewer rows than the checkpoint counted     (stops the table)
|-- ChangesMissing        the log goes on above the place of a table            (stops the table)
|-- RecordDamaged         a record is not what its schema says                  (stops the table)
|-- AnotherShape          records are of a shape that no marker tells of        (stops the table)
|-- TopicCut              a topic no longer holds an offset that is needed      (stops the table)
|-- ReplayImpossible      the topics do not hold what a replay was asked for
'-- SparkEnded            the JVM is gone
DestinationError
|-- DestinationInUse      another apply writes there
|-- DestinationTaken      another apply took over while this one was frozen
|-- DestinationLocked     somebody else holds the file or the table             (timed)
|-- DestinationAway       its server does not answer                            (timed)
|-- DestinationFull       it has no room                                        (timed)
|-- NotPermitted          its role may not write to a table                     (stops the table, timed)
|-- TablesHeld            all is copied, except tables that were stopped
|-- DestinationNotNew     a replay was to fill a destination that has progress
|-- ReplayInterrupted     a replay was told to stop before its end
|-- PartialRow            a change lacks what only the mirror could have        (stops the table)
|-- NotHeld               no place for a value, or not for the table            (stops the table)
|-- NotShown              what is configured to be shown of it cannot be        (stops the table)
|-- NotKept               it cannot be kept in the mode of the destination     (stops the table)
|-- ShapeRefused          its columns changed, and the configuration forbids it (stops the table)
'-- TableFailed           one table cannot be written, for one of these reasons (stops the table)

A table that was stopped by an error that is timed is tried again by apply itself; the others wait for a human.
"""

from __future__ import annotations

from collections.abc import Sequence

from apply_spark.progress import TableProgress
from schemas.errors import ConfigError, DestinationError, LogError, PenstockError, Retry
from schemas.identifiers import TableName
from schemas.lsn import Lsn


class DestinationNotInstalled(ConfigError):
    """Its type is known, but what it needs is not installed."""


class RowsMissing(LogError):
    """Records that a checkpoint counted are not on their topic."""

    solution = "Records were lost on Kafka. Run `penstock resync TABLE`."


class ChangesMissing(LogError):
    """No checkpoint speaks of the transactions between where the table stands and where the log goes on."""

    def __init__(self, table: TableProgress, start: Lsn) -> None:
        super().__init__(
            f"The log goes on at {start}, the table stands at {table.lsn}: changes between are lost to it.",
            solution=f"Run `penstock resync {table.table}`.",
        )


class RecordDamaged(LogError):
    """A record whose bytes are not what its schema says."""

    solution = "A record was damaged on Kafka, or written by somebody else. Run `penstock resync TABLE`."


class AnotherShape(LogError):
    """The log does not tell how the table came to the shape of its records."""

    solution = "Run `penstock resync TABLE`."


class TopicCut(LogError):
    """A topic does not reach from where it is needed to where a checkpoint says it ends."""

    def __init__(self, topic: str, reason: str, *, solution: str) -> None:
        super().__init__(f"Topic {topic} {reason}", solution=solution)
        self.topic = topic


class ReplayImpossible(LogError):
    """What is left on the topics is not what was asked for."""


class SparkEnded(LogError):
    """The Java process of this apply is not there any more."""

    solution = (
        "Look at its last lines in the log. After an OutOfMemoryError raise `apply.driver_memory`: the largest row "
        "takes up to twenty times its size there. Apply goes on where the destination stands."
    )


class DestinationInUse(DestinationError):
    """Another apply writes to this destination."""

    solution = "Stop the other apply, or give this one another destination."


class DestinationTaken(DestinationError):
    """The stored progress is not the one this apply wrote: another one has taken over."""

    solution = "Stop one of the two; only one apply may write to a destination."


class DestinationLocked(DestinationError):
    """The destination's file, or a table in it, is held by somebody else."""

    retry = Retry.TIMED
    solution = "Close the other program, or have it open the file read-only and for a short time."


class DestinationAway(DestinationError):
    """The destination's server does not answer."""

    retry = Retry.TIMED
    solution = "Start the destination's server, or check its address and the network; then start apply again."


class DestinationFull(DestinationError):
    """The destination has no room for more."""

    retry = Retry.TIMED
    solution = "Make room at the destination. Apply tries again by itself; `penstock rollback TABLE`: at once."


class NotPermitted(DestinationError):
    """The destination does not let apply do something with a table."""

    retry = Retry.TIMED
    solution = "Give apply's role the right. Apply tries again by itself; `penstock rollback TABLE`: at once."


class TablesHeld(DestinationError):
    """Apply was to end when everything is copied, and some tables are not."""

    solution = "Run `penstock status`: it has the reason and the solution of each."


class DestinationNotNew(DestinationError):
    """The destination has progress of its own, which is not that of this replay."""

    solution = "Name a new destination; or let `penstock apply` take this one on from where it stands."


class ReplayInterrupted(DestinationError):
    """The destination is filled in part."""

    solution = "Run the same command again: it goes on where it stopped."


class TableFailed(DestinationError):
    """One table cannot go on; the others can."""

    def __init__(self, table: TableName, error: PenstockError, *, written: Sequence[TableProgress] = ()) -> None:
        super().__init__(f"Table {table}: {error.reason}", solution=error.solution)
        self.table = table
        self.retry = error.retry
        self.written = tuple(written)
        """Tables of the same batch that stand there already, at a destination without transactions over tables."""


class PartialRow(DestinationError):
    """An update left out a TOASTed value, and no earlier row holds it."""

    solution = "Run `penstock resync TABLE`."


class NotHeld(DestinationError):
    """The destination has no place for a value."""


class NotShown(DestinationError):
    """A table cannot be shown as its destination's configuration says."""

    solution = (
        "Correct `tables`, `rename` or `columns` of the destination and start apply again; a table that is still held "
        "goes on after `penstock rollback TABLE`."
    )


class NotKept(DestinationError):
    """A table cannot be kept in the mode of its destination."""


class ShapeRefused(DestinationError):
    """A table's columns are others than the mirror's, which is not to follow, or cannot."""
