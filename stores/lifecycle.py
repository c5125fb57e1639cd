"""The two moments in which everything known of a table changes at once: the Protocol."""

from __future__ import annotations

from typing import Protocol

from schemas.identifiers import TableName


class TableLifecycleStore(Protocol):
    """Each call is one transaction: after a crash all of it happened, or nothing.

    Threads, durability, repetition and several processes: as StateStore promises."""

    def clear_for_copy(self, table: TableName) -> None:
        """Make room for a new copy of the table.

        Forgotten, at every owner: the copy with its ranges, the destination tables, and the phases with their history.
        Every owner that had a phase for the table stands at Init, with Init as its whole history, so that no rollback
        leads back behind the copy that was forgotten; an owner that had none still has none. Every stored phase may go
        to Init, so none is refused. Schema versions, progress and mappings stay. An unknown table is not an error."""

    def delete_table(self, table: TableName) -> None:
        """Forget everything of the table at every owner: phases, copy and its ranges, destination tables, mappings,
        schema versions.

        Progress stays, as it belongs to the owners. An unknown table is not an error."""
