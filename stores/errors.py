"""What can go wrong with the pipeline's memory.

StoreError                    (schemas.errors)
|-- StoreUnreachable          nobody answers, or others hold the lock: time may heal it
|-- StoreUnreadable           there is something, but it is not a store of penstock, or it is damaged
|-- StoreTooNew               a newer penstock wrote it
|-- StoreClosed               used after `close()`
|-- StoreTaken                claimed, and another process wrote or claimed since: time may heal it
|-- PhaseNotStored            SyncWait and Catchup live in memory alone
|-- NothingToRollBack         a table stands in its first phase, or has none
'-- SchemaVersionConflict     one LSN, two shapes
"""

from __future__ import annotations

from schemas.errors import Retry, StoreError


class StoreUnreachable(StoreError):
    """The store does not answer. Whether the last write became durable is not known: the next call reads it again."""

    retry = Retry.TIMED


class StoreUnreadable(StoreError):
    """What lies there is not what penstock wrote."""

    solution = (
        "Restore it from a backup, or move it away: penstock then starts an empty one and copies every table again."
    )


class StoreTooNew(StoreError):
    """The store has migrations that this version does not know."""

    solution = (
        "Upgrade this penstock to the version that last used this store, or a newer one. To go back, see "
        "docs/how-to/upgrade.md."
    )


class StoreClosed(StoreError):
    """A store is used after it was closed."""

    solution = "This is a defect of penstock: please report it with the log of this process."


class StoreTaken(StoreError):
    """Another process uses a store that was claimed. What was to be written is not."""

    retry = Retry.TIMED
    solution = "Stop the other capture of this pipeline, or give it a pipeline and a store of its own."


class PhaseNotStored(StoreError):
    """A phase that does not outlive the process was to be stored."""

    solution = "This is a defect of penstock: please report it with the log of this process."


class NothingToRollBack(StoreError):
    """There is no phase before the current one."""

    solution = "Run `penstock resync TABLE` to copy the table again."


class SchemaVersionConflict(StoreError):
    """A table cannot have two shapes from one LSN on."""

    solution = "Run `penstock resync TABLE`: the topics or the source were replaced under this store."
