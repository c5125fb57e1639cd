"""What the pgoutput plugin says (protocol 1), as values.

Positions are `Lsn`, times are microseconds since 1970, column values are the server's text as bytes, undecoded.
What comes once a row is not frozen: freezing makes construction 2-3 times dearer.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, TypeAlias

from schemas.identifiers import TableId
from schemas.lsn import Lsn
from schemas.table import ReplicaIdentity


class Unchanged(enum.Enum):
    """The type of `UNCHANGED`: its one member."""

    UNCHANGED = "unchanged"

    def __repr__(self) -> str:
        return self.name


UNCHANGED: Final = Unchanged.UNCHANGED
"""A TOASTed value that the update did not touch and the server did not send. It is not NULL."""

ColumnValue: TypeAlias = bytes | Unchanged | None
TupleData: TypeAlias = tuple[ColumnValue, ...]


class OldKind(enum.Enum):
    """What an old tuple holds; the values are the tags on the wire."""

    KEY = "K"
    """The columns of the replica identity; all others are NULL."""
    FULL = "O"
    """The whole old row: the table has REPLICA IDENTITY FULL."""


@dataclass(slots=True)
class Insert:
    """A row came."""

    relation: TableId
    new: TupleData


@dataclass(slots=True)
class Update:
    """A row changed. `old` and `old_kind` are there if its identity changed or is FULL, else both are None."""

    relation: TableId
    old: TupleData | None
    old_kind: OldKind | None
    new: TupleData


@dataclass(slots=True)
class Delete:
    """A row went."""

    relation: TableId
    old: TupleData
    old_kind: OldKind


@dataclass(slots=True)
class Begin:
    """A committed transaction starts. `final_lsn` is its commit LSN: the first half of every position in it."""

    final_lsn: Lsn
    commit_ts: int
    xid: int


@dataclass(slots=True)
class Commit:
    """The transaction is complete. `end_lsn` is the LSN behind its commit record: where a window may end."""

    lsn: Lsn
    end_lsn: Lsn
    commit_ts: int


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A published column as the stream describes it. `key`: part of the replica identity."""

    name: str
    type_oid: int
    modifier: int
    key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """The shape of a table from here on. Sent before its first row and after any change; may repeat."""

    id: TableId
    schema: str
    name: str
    identity: ReplicaIdentity
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Type:
    """The name of a type that is not built in."""

    oid: int
    schema: str
    name: str


@dataclass(frozen=True, slots=True)
class Truncate:
    """Tables were emptied together."""

    relations: tuple[TableId, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """What pg_logical_emit_message() was given. Not transactional: it stands outside Begin..Commit."""

    transactional: bool
    lsn: Lsn
    prefix: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Origin:
    """The transaction was replicated to this server from another, where it committed at `lsn`."""

    lsn: Lsn
    name: str


Message: TypeAlias = Insert | Update | Delete | Begin | Commit | Relation | Type | Truncate | LogicalMessage | Origin
