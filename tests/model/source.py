"""A Postgres as large as the protocol sees it: transactions in a WAL, a publication, a slot, snapshots and COPY.

LSNs count up in tens. A commit stands at the end of the WAL, and what follows it may begin exactly where it ends, so
every bound is met by a commit that stands on it.
"""

from __future__ import annotations

import enum
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from capture.pgoutput.messages import UNCHANGED, Delete, Insert, OldKind, Truncate, Update
from capture.publication import PublishedTable, TableFile
from schemas.identifiers import TableId, TableName
from schemas.lsn import Lsn
from schemas.table import ReplicaIdentity, TableSchema
from tests.support.builders import INT8, a_column, a_table
from tests.support.published import BLOCK, a_file

STEP = 10
_BEGIN = Lsn(100)
A, B = TableName("public", "a"), TableName("public", "b")
Values = tuple[int, str, str]
Message = Insert | Update | Delete | Truncate


class Kind(enum.Enum):
    """What rows of a table are known by, and whether updates leave a value out that they do not change."""

    PLAIN = "with a key, sent whole"
    TOASTED = "with a key, `body` lives out of line"
    BAG = "without a key, identity full, `body` lives out of line"


@dataclass(frozen=True, slots=True)
class Row:
    """Any update moves a row to the other block, so that ranges of a copy see it twice, or not at all."""

    values: Values
    block: int

    def updated(self, values: Values) -> Row:
        return Row(values, 1 - self.block)


Rows = tuple[Row, ...]


def bag(rows: Rows) -> Counter[Values]:
    return Counter(row.values for row in rows)


@dataclass(frozen=True, slots=True)
class Transaction:
    """A committed one. It holds what the publication had of it at the time."""

    commit_lsn: Lsn
    end_lsn: Lsn
    messages: tuple[Message, ...]
    tables: frozenset[TableName]


@dataclass(frozen=True, slots=True)
class Moment:
    """The tables from `lsn` on: every transaction with commit LSN < `lsn` is in, none after."""

    lsn: Lsn
    rows: dict[TableName, Rows]
    members: dict[TableName, int]


@dataclass(frozen=True)
class Snapshot:
    """What HeldSnapshot is: a moment, and the files that the tables had then."""

    id: str
    lsn: Lsn
    rows: dict[TableName, Rows]
    filenodes: dict[TableName, int]

    def close(self) -> None:
        """Nothing holds it."""


class Draft:
    """A transaction under way: what it does to the tables, and what pgoutput will say of it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.rows = dict(source.rows)
        self.filenodes = dict(source.filenodes)
        self.messages: list[Message] = []
        self.tables: set[TableName] = set()
        self.mark = f"v{len(source.moments)}"

    def insert(self, table: TableName, key: int | None = None) -> None:
        known = {row.values[0] for row in self.rows[table]}
        key = key if key is not None else next(number for number in range(1, 99) if number not in known)
        values = (key, self.mark, f"big {self.mark}")
        self.rows[table] += (Row(values, key % 2),)
        self._say(table, Insert(self._id(table), values))

    def update(self, table: TableName, place: int, *, key: int | None = None) -> None:
        """Sets `note`, and with `key` moves the row there; `body` stays, and is sent only where it has to be."""
        old = self.rows[table][place]
        new: Values = (old.values[0] if key is None else key, self.mark, old.values[2])
        self._put(table, place, old.updated(new))
        kind = self._source.kinds[table]
        sent = new if kind is Kind.PLAIN else (*new[:2], UNCHANGED)
        before, old_kind = None, None
        if kind is Kind.BAG:
            before, old_kind = old.values, OldKind.FULL
        elif key is not None:
            before, old_kind = (old.values[0], None, None), OldKind.KEY
        self._say(table, Update(self._id(table), before, old_kind, sent))

    def delete(self, table: TableName, place: int) -> None:
        old = self.rows[table][place]
        self._put(table, place, None)
        full = self._source.kinds[table] is Kind.BAG
        before = old.values if full else (old.values[0], None, None)
        self._say(table, Delete(self._id(table), before, OldKind.FULL if full else OldKind.KEY))

    def truncate(self, table: TableName) -> None:
        self.rows[table] = ()
        self.filenodes[table] += 1
        self._say(table, Truncate((self._id(table),), cascade=False, restart_identity=False))

    def _put(self, table: TableName, place: int, row: Row | None) -> None:
        rows = self.rows[table]
        self.rows[table] = rows[:place] + ((row,) if row is not None else ()) + rows[place + 1 :]

    def _id(self, table: TableName) -> TableId:
        return self._source.schemas[table].id

    def _say(self, table: TableName, message: Message) -> None:
        if table in self._source.members:
            self.messages.append(message)
            self.tables.add(table)


Edit = Callable[[Draft], None]


@dataclass
class Source:
    """The server. `wal` has every transaction, `moments` what the tables were after each."""

    kinds: dict[TableName, Kind]
    end: Lsn = _BEGIN
    wal: list[Transaction] = field(default_factory=list)
    confirmed: Lsn | None = None
    """Of the slot; None: there is none yet."""
    snapshots: int = 0

    def __post_init__(self) -> None:
        self.schemas = {name: _schema(name, kind) for name, kind in self.kinds.items()}
        self.filenodes = dict.fromkeys(self.kinds, 1)
        self.rows: dict[TableName, Rows] = {name: (Row((1, "v0", "big v0"), 1),) for name in self.kinds}
        self.members: dict[TableName, int] = dict.fromkeys(self.kinds, 1)
        self._joined = 1
        self.moments = [Moment(Lsn(0), dict(self.rows), dict(self.members))]

    def commit(self, edits: Sequence[Edit]) -> None:
        draft = Draft(self)
        for edit in edits:
            edit(draft)
        self.rows, self.filenodes = draft.rows, draft.filenodes
        commit_lsn = self.end
        self.write_other()
        if draft.messages:
            self.wal.append(Transaction(commit_lsn, self.end, tuple(draft.messages), frozenset(draft.tables)))
        self._remember(Lsn(commit_lsn + 1))

    def write_other(self) -> None:
        """WAL that nobody publishes."""
        self.end = Lsn(self.end + STEP)

    def rewrite(self, table: TableName) -> None:
        """Another file with the same rows, and no word of it: VACUUM FULL, CLUSTER."""
        self.filenodes[table] += 1
        self.write_other()

    def leave(self, table: TableName) -> None:
        del self.members[table]
        self.write_other()
        self._remember(self.end)

    def join(self, table: TableName) -> None:
        self._joined += 1
        self.members[table] = self._joined
        self.write_other()
        self._remember(self.end)

    def published(self) -> list[PublishedTable]:
        return [self._published(table) for table in self.members]

    def snapshot(self) -> Snapshot:
        """The slot that gives it writes WAL, so no two have one LSN."""
        self.write_other()
        self.snapshots += 1
        return Snapshot(f"s{self.snapshots}", self.end, dict(self.rows), dict(self.filenodes))

    def copied(self, snapshot: Snapshot, table: TableName, first: int, end: int | None) -> list[Values]:
        """What COPY gives under a snapshot. A file that was replaced since shows nothing: COPY is not MVCC-safe."""
        if self.filenodes[table] != snapshot.filenodes[table]:
            return []
        last = 99 if end is None else end
        return [row.values for row in snapshot.rows[table] if first <= row.block < last]

    def since(self, lsn: Lsn) -> list[Transaction]:
        """What START_REPLICATION at `lsn` sends."""
        return [each for each in self.wal if each.commit_lsn >= lsn]

    def at(self, lsn: Lsn) -> Moment:
        return [moment for moment in self.moments if moment.lsn <= lsn][-1]

    def _remember(self, lsn: Lsn) -> None:
        self.moments.append(Moment(lsn, dict(self.rows), dict(self.members)))

    def _published(self, table: TableName) -> PublishedTable:
        file: TableFile = a_file(2, name=table.name)
        return PublishedTable(
            schema=self.schemas[table],
            files=(file,),
            filenode=f"{file.id}:{self.filenodes[table]}",
            fingerprint=json.dumps({"publish": [True] * 4, "member": self.members[table]}),
            row_filter=None,
            partitioned=False,
            size=2 * BLOCK,
            toastable=self.kinds[table] is not Kind.PLAIN,
        )


def _schema(name: TableName, kind: Kind) -> TableSchema:
    return a_table(
        a_column("id", INT8, key=kind is not Kind.BAG, number=1),
        a_column("note", number=2),
        a_column("body", number=3),
        name=name,
        table_id=1 + (name == B),
        identity=ReplicaIdentity.FULL if kind is Kind.BAG else ReplicaIdentity.DEFAULT,
    )


def _free(rows: Rows) -> int:
    known = {row.values[0] for row in rows}
    return next(number for number in range(1, 99) if number not in known)


EDITS: dict[str, Callable[[Draft, TableName], None]] = {
    "insert": lambda draft, table: draft.insert(table),
    "update": lambda draft, table: draft.update(table, 0),
    "update last": lambda draft, table: draft.update(table, len(draft.rows[table]) - 1),
    "move": lambda draft, table: draft.update(table, 0, key=_free(draft.rows[table])),
    "delete": lambda draft, table: draft.delete(table, 0),
    "truncate": lambda draft, table: draft.truncate(table),
}
"""What a transaction can do to a table."""


def edit_of(name: str, table: TableName) -> Edit:
    return lambda draft: EDITS[name](draft, table)
