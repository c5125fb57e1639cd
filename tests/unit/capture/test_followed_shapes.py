"""Random histories of a table, and a capture that reads them late: what it follows is what the table was."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from hypothesis import example, given
from hypothesis import strategies as st

from capture.copied_shapes import CopiedShapes
from capture.ddl import TableAltered
from capture.publication import PublishedTable
from capture.registrar import Registrar
from capture.schema_versions import SchemaVersions
from schemas.checkpoint import CopyStarted, SchemaChanged
from schemas.identifiers import SchemaId
from schemas.lsn import Lsn, Position
from schemas.table import Column, TableSchema
from stores.memory import MemoryStore
from tests.support.builders import a_column, a_table

KEY = a_column("id", key=True, number=1)
NAMES = ("a", "b", "c")


@dataclass(frozen=True)
class Moment:
    """The table after one step of its history."""

    schema: TableSchema
    file: int
    added: dict[int, str | None]
    """What rows had in each new column when it came, whatever the catalog has forgotten since."""

    @property
    def published(self) -> PublishedTable:
        file = f"1:{self.file}:"
        return PublishedTable(self.schema, (), file, "so", None, partitioned=False, size=0, toastable=False)

    def truth(self) -> list[tuple[str, int]]:
        return [(column.name, column.number) for column in self.schema.columns]


@dataclass(frozen=True)
class Step:
    """DDL, or a row that comes."""

    what: str
    place: int
    """Of the column that goes or is renamed, among those that are there."""
    name: int
    """Of a column that comes or is renamed, among those that are free."""
    missing: str | None


def after(now: Moment, step: Step) -> Moment:
    columns, width = list(now.schema.columns), now.schema.width
    free = [name for name in NAMES if name not in {column.name for column in columns}]
    place = 1 + step.place % (len(columns) - 1) if len(columns) > 1 else None
    match step.what:
        case "add" if free:
            new = a_column(free[step.name % len(free)], number=width + 1, missing=step.missing)
            return _with(now, [*columns, new], width + 1, now.added | {new.number: step.missing})
        case "drop" if place:
            return _with(now, columns[:place] + columns[place + 1 :], width)
        case "rename" if place and free:
            columns[place] = replace(columns[place], name=free[step.name % len(free)])
            return _with(now, columns, width)
        case "vacuum full":
            emptied = [replace(column, missing=None) for column in columns]
            return replace(_with(now, emptied, width), file=now.file + 1)
    return now


def _with(now: Moment, columns: list[Column], width: int, added: dict[int, str | None] | None = None) -> Moment:
    return Moment(replace(now.schema, columns=tuple(columns), width=width), now.file, added or now.added)


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["add", "drop", "rename", "row", "row", "add", "drop", "row", "vacuum full"]),
        st.integers(0, 2),
        st.integers(0, 1),
        st.sampled_from([None, "7"]),
    ),
    min_size=2,
    max_size=8,
)
LAGS = st.lists(st.integers(0, 4), min_size=8, max_size=8)


class _Book:
    def __init__(self) -> None:
        self.known: list[TableSchema] = []

    def schema_ids(self, table: TableSchema) -> tuple[SchemaId, SchemaId | None]:
        if table not in self.known:
            self.known.append(table)
        return SchemaId(self.known.index(table)), None

    def table_schema(self, schema_id: SchemaId) -> TableSchema:
        return self.known[schema_id]


@dataclass
class _Capture:
    """Reads a history, `lags` steps behind the catalog, and keeps what it has told."""

    steps: list[Step]
    lags: list[int]
    told: bool

    def __post_init__(self) -> None:
        start = Moment(a_table(KEY, a_column("a", number=2), a_column("b", number=3)), 1, {})
        self.moments = [start]
        for step in self.steps:
            self.moments.append(after(self.moments[-1], step))
        self.book, self.seen = _Book(), 0
        versions, registrar = SchemaVersions(MemoryStore()), cast("Registrar", self.book)
        self.shapes = CopiedShapes(registrar, lambda _name, _xid: self.catalog.published, lambda _: {}, versions)
        schema_id = self.book.schema_ids(start.schema)[0]
        self.shapes.started(CopyStarted(start.schema.name, schema_id, Lsn(0), start.published.filenode, "so", 0, 0))
        self.mirror = start.schema

    @property
    def catalog(self) -> Moment:
        return self.moments[self.seen]

    def read(self, place: int) -> SchemaChanged | None:
        """What comes of one step of the history."""
        step, now = self.steps[place], self.moments[place + 1]
        self.seen = max(self.seen, min(place + 1 + self.lags[place], len(self.moments) - 1))
        position = Position(Lsn(place + 1), 0)
        if step.what == "row":
            bare = replace(now.schema, columns=tuple(replace(c, number=0, missing=None) for c in now.schema.columns))
            agreed = self.catalog.schema.same_shape(bare)
            return self.shapes.compared(
                self.catalog.schema if agreed else bare, SchemaId(0), position, self.catalog.published
            )
        if not self.told or step.what == "vacuum full":
            return None
        dropped = frozenset({"some"} if step.what == "drop" else ())
        return self.shapes.altered(TableAltered(now.schema.name, False, dropped, now.schema.columns), position, 1)


ROW = Step("row", 0, 0, None)
DROP_B, ADD_B = Step("drop", 1, 0, None), Step("add", 0, 0, None)
B_TO_C, DROP_C, ADD_C = Step("rename", 1, 0, None), Step("drop", 1, 0, None), Step("add", 0, 1, None)


@given(steps=STEPS, lags=LAGS, told=st.booleans())
@example(steps=[DROP_B, ADD_B, ROW, DROP_B, ADD_B], lags=[3, 0, 2, 0, 0], told=True)
@example(steps=[B_TO_C, ROW, DROP_C, ADD_C], lags=[0, 2, 0, 0], told=False)
def test_what_is_followed_is_what_the_table_was(steps: list[Step], lags: list[int], told: bool) -> None:  # noqa: FBT001
    capture = _Capture(steps, lags, told)

    for place in range(len(steps)):
        changed = capture.read(place)
        if changed is not None and changed.rewrite:
            return
        now = capture.moments[place + 1]
        if changed is not None:
            before, capture.mirror = capture.mirror, capture.book.table_schema(changed.schema_id)
            numbers = {column.number for column in before.columns}
            added = [column for column in capture.mirror.columns if column.number not in numbers]
            assert [column.missing for column in added] == [now.added[column.number] for column in added]
        if steps[place].what == "row" and (told or changed is not None):
            assert [(column.name, column.number) for column in capture.mirror.columns] == now.truth()
