"""A table of the source, the records that its changes leave on the topic, and a mirror that takes folded changes.

The source is as exact as it must be and no more: a value that begins with BIG lives out of line, so an update that does
not change it does not send it; a change of the key is a delete and a create at two ordinals, the create naming the old
key; deletes and moves carry the old key alone, or the whole old row where the identity is FULL.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from pyspark.sql import Row, SparkSession
from pyspark.sql import types as T  # noqa: N812 -- Spark's own convention

from apply_spark.fold import Contents, contents_columns, fold, is_simple, latest
from apply_spark.records import contents as contents_here
from destination_contract.frames import a_frame
from schemas.lsn import Lsn, Position
from schemas.table import ReplicaIdentity, TableSchema
from tests.support.builders import INT8, a_column, a_table

Key: TypeAlias = tuple[int, int, int]
Values: TypeAlias = tuple[Any, ...]

BIG = "big "
FLOAT8 = 701
KEYED = a_table(
    a_column("case", INT8, key=True),
    a_column("note"),
    a_column("id", INT8, key=True),
    a_column("body"),
    a_column("sub id", INT8, key=True),
    a_column("amount", INT8),
)
KEYLESS = a_table(
    a_column("case", INT8), a_column("note"), a_column("amount", FLOAT8), identity=ReplicaIdentity.FULL, table_id=16_385
)
_KEY_PLACES = (0, 2, 4)
_IMAGE = T.StructType(
    [
        T.StructField("case", T.LongType()),
        T.StructField("note", T.StringType()),
        T.StructField("id", T.LongType()),
        T.StructField("body", T.StringType()),
        T.StructField("sub_x20_id", T.LongType()),
        T.StructField("amount", T.LongType()),
    ]
)
_BAG_IMAGE = T.StructType([*_IMAGE.fields[:2], T.StructField("amount", T.DoubleType())])


class Change(NamedTuple):
    """A record of a change topic as `apply_spark.decode` gives it."""

    commit_lsn: int
    ordinal: int
    epoch: int
    op: str
    before: Values | None
    after: Values | None
    unchanged: list[str]


def row_of(key: Key, note: str | None, body: str | None, amount: int) -> Values:
    return key[0], note, key[1], body, key[2], amount


def key_of(row: Values) -> Key:
    case, number, sub = (row[place] for place in _KEY_PLACES)
    return case, number, sub


@dataclass
class SourceTable:
    """Rows by key, at the beginning and now; `changes` is what the stream has sent of them.

    Several tables can share one stream: each `case` has keys and LSNs of its own."""

    began: dict[Key, Values]
    case: int = 0
    changes: list[Change] = field(default_factory=list)
    _transaction: int = 1
    _ordinal: int = 0

    def __post_init__(self) -> None:
        self.rows = dict(self.began)

    def commit(self) -> None:
        self._transaction += 1
        self._ordinal = 0

    def insert(self, row: Values) -> None:
        assert key_of(row) not in self.rows
        self.rows[key_of(row)] = row
        self._send("c", None, row)

    def update(self, key: Key, **changed: Any) -> None:  # noqa: ANN401 -- any column
        """Sets columns; where the key is among them, the row moves."""
        old = self.rows.pop(key)
        new = tuple(changed.get(column.name, value) for column, value in zip(KEYED.columns, old, strict=True))
        unsent = [
            column.name
            for column, value in zip(KEYED.columns, old, strict=True)
            if isinstance(value, str) and value.startswith(BIG) and column.name not in changed
        ]
        assert key_of(new) not in self.rows
        self.rows[key_of(new)] = new
        if key_of(new) == key:
            self._send("u", None, new, unsent)
        else:
            self._send("d", _key_image(key), None)
            self._send("c", _key_image(key), new, unsent)

    def move(self, key: Key, to: Key, **changed: Any) -> None:  # noqa: ANN401 -- any column
        self.update(key, **{"case": to[0], "id": to[1], "sub id": to[2]}, **changed)

    def delete(self, key: Key) -> None:
        del self.rows[key]
        self._send("d", _key_image(key), None)

    def truncate(self) -> None:
        self.rows.clear()
        self._send("t", None, None)

    def _send(self, op: str, before: Values | None, after: Values | None, unsent: Iterable[str] = ()) -> None:
        names = list(unsent)
        if after is not None:
            after = tuple(None if c.name in names else v for c, v in zip(KEYED.columns, after, strict=True))
        self.changes.append(Change(self._transaction * 100_000 + self.case, self._ordinal, 7, op, before, after, names))
        self._ordinal += 1


def _key_image(key: Key) -> Values:
    return row_of(key, None, None, None)  # type: ignore[arg-type]


@dataclass
class SourceBag:
    """A table without a key, identity FULL: every change carries the whole old row."""

    began: list[Values]
    case: int = 0
    changes: list[Change] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rows = Counter(self.began)

    def change(self, old: Values | None, new: Values | None) -> None:
        if old is not None:
            self.rows[old] -= 1
        if new is not None:
            self.rows[new] += 1
        op = "u" if old is not None and new is not None else "c" if new is not None else "d"
        self._send(op, old, new)

    def truncate(self) -> None:
        self.rows.clear()
        self._send("t", None, None)

    def _send(self, op: str, before: Values | None, after: Values | None) -> None:
        self.changes.append(Change(100_000 + self.case, len(self.changes), 7, op, before, after, []))


@dataclass
class Chance:
    """Random histories among few keys, so that keys meet often.

    `big` is how often a text lives out of line, `moves` how often a key changes, as against one insert."""

    random: random.Random
    keys: int = 5
    big: float = 0.6
    moves: int = 3
    truncates: float = 0.0

    @classmethod
    def of(cls, seed: int, **kind: Any) -> Chance:  # noqa: ANN401 -- the fields above
        return cls(random.Random(seed), **kind)  # noqa: S311 -- chance that can be repeated, not a secret

    def history(self, case: int, steps: int) -> SourceTable:
        table = SourceTable({key: self._row(key) for key in self._pool(case) if self.random.random() < 0.5}, case)
        self.go_on(table, steps)
        return table

    def go_on(self, table: SourceTable, steps: int) -> None:
        for _ in range(steps):
            self._step(table)
            if self.random.random() < 0.3:
                table.commit()

    def _pool(self, case: int) -> list[Key]:
        return [(case, number // 2, number % 2) for number in range(self.keys)]

    def _step(self, table: SourceTable) -> None:
        pick, pool = self.random.choice, self._pool(table.case)
        there = [key for key in pool if key in table.rows]
        free = [key for key in pool if key not in table.rows]
        possible: list[Callable[[], None]] = []
        if free:
            possible.append(lambda: table.insert(self._row(pick(free))))
        if there:
            possible += [lambda: table.update(pick(there), **self._values())] * 2
            possible.append(lambda: table.delete(pick(there)))
        if there and free:
            possible += [lambda: table.move(pick(there), pick(free), **self._values())] * self.moves
        if self.random.random() < self.truncates:
            possible = [table.truncate]
        pick(possible)()

    def _values(self) -> dict[str, Any]:
        values = {"note": self._text(), "body": self._text(), "amount": self.random.randrange(1000)}
        return {name: value for name, value in values.items() if self.random.random() < 0.3}

    def _row(self, key: Key) -> Values:
        return row_of(key, self._text(), self._text(), self.random.randrange(1000))

    def _text(self) -> str | None:
        if self.random.random() < self.big:
            return f"{BIG}{self.random.random()}"
        return self.random.choice([None, "", f"small {self.random.random()}"])

    def bag_history(self, case: int, steps: int) -> SourceBag:
        bag = SourceBag([self._bag_row(case) for _ in range(self.random.randrange(6))], case)
        for _ in range(steps):
            there = list(bag.rows.elements())
            if self.random.random() < self.truncates:
                bag.truncate()
            elif not there or self.random.random() < 0.4:
                bag.change(None, self._bag_row(case))
            else:
                bag.change(self.random.choice(there), self.random.choice([None, self._bag_row(case)]))
        return bag

    def _bag_row(self, case: int) -> Values:
        return case, self.random.choice([None, "", "x"]), self.random.choice([None, 1.0, 2.5])


def folded(spark: SparkSession, changes: Iterable[Change], schema: TableSchema) -> tuple[bool, list[Row]]:
    """Whether the interval truncates, and what is left of its changes; where it can be folded in two ways, by both."""
    image = _IMAGE if schema.key else _BAG_IMAGE
    shape = T.StructType(
        [
            T.StructField("commit_lsn", T.LongType(), nullable=False),
            T.StructField("ordinal", T.LongType(), nullable=False),
            T.StructField("epoch", T.LongType(), nullable=False),
            T.StructField("op", T.StringType(), nullable=False),
            T.StructField("before", image),
            T.StructField("after", image),
            T.StructField("unchanged", T.ArrayType(T.StringType(), containsNull=False), nullable=False),
        ]
    )
    rows = a_frame(spark, changes, shape)
    here = rows.toArrow()
    (found,) = rows.agg(*contents_columns()).collect()
    truncated = found.truncated_at
    contents = Contents(
        rows=found.rows,
        partial=found.partial,
        takes_away=found.takes_away,
        moves=found.moves,
        truncated_at=Position(Lsn(truncated[0]), truncated[1]) if truncated else None,
    )
    assert contents_here(here) == contents
    events = fold(rows, schema, contents).collect()
    if is_simple(here, schema, contents):
        assert _sorted(spark.createDataFrame(latest(here, schema, contents)).collect()) == _sorted(events)
    return contents.truncated_at is not None, events


def _sorted(events: list[Row]) -> list[Row]:
    return sorted(events, key=lambda event: tuple(event.key))


def missing(event: Row) -> list[str]:
    """What was not sent; rows that were all sent whole do not speak of it."""
    return list(event.missing) if "missing" in event else []


def mirror_after(before: dict[Key, Values], events: Iterable[Row]) -> dict[Key, Values]:
    """What a destination that held `before` holds after the events, by the contract of TableChanges."""
    after, upserts = dict(before), []
    for event in events:
        if not event.deleted:
            row = event.row.asDict()
            if missing(event):
                assert event.base is not None, f"{event.key} lacks {event.missing} and has no base"
                assert tuple(event.base) in before, f"{event.key} lacks {event.missing}; nothing is at {event.base}"
                base = dict(zip(row, before[tuple(event.base)], strict=True))
                row |= {name: base[name] for name in event.missing}
            upserts.append(tuple(row.values()))
        after.pop(tuple(event.key), None)
    return after | {key_of(row): row for row in upserts}


def bag_after(before: Iterable[Values], events: Iterable[Row]) -> Counter[Values]:
    after = Counter(before)
    for event in events:
        after[tuple(event.row)] += event.net
    assert all(count >= 0 for count in after.values()), "more copies go than there were"
    return +after
