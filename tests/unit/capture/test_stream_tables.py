from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from capture.ddl import TableAltered, decode_ddl
from capture.pgoutput.messages import Relation, RelationColumn
from capture.publication import PublishedTable, missing_text
from capture.registrar import Registrar
from capture.schema_versions import SchemaVersions
from capture.tables import StreamTables
from schemas.checkpoint import CopyStarted, SchemaChanged
from schemas.identifiers import Epoch, LogId, PipelineName, SchemaId, TableName
from schemas.lsn import Lsn, Position
from schemas.table import Column, TableSchema
from stores.memory import MemoryStore
from stores.state import TableCopy
from tests.support.builders import INT8, a_column, a_table

ID, NOTE = a_column("id", INT8, nullable=False, key=True, number=1), a_column(number=2)
ORDERS = a_table(ID, NOTE)
WIDER = a_table(ID, NOTE, a_column("more", number=3, missing="7"))
COPIED, WIDENED, OTHER = SchemaId(1), SchemaId(2), SchemaId(3)


def told_of(*schemas: TableSchema, **further: Any) -> TableAltered:  # noqa: ANN401 -- fields of different types
    """What the triggers write of tables of these columns."""
    columns = tuple(replace(column, type_name="", key=False) for schema in schemas for column in schema.columns)
    told = TableAltered(ORDERS.name, rewritten=False, dropped=frozenset(), columns=columns)
    return replace(told, **further)


ALTERED = told_of(ORDERS)
REWRITTEN = replace(ALTERED, rewritten=True)


class _Book:
    """A registrar that knows the two shapes."""

    def schema_ids(self, table: TableSchema) -> tuple[SchemaId, SchemaId | None]:
        return (COPIED if table == ORDERS else WIDENED if table == WIDER else OTHER), None

    def table_schema(self, schema_id: SchemaId) -> TableSchema:
        return ORDERS if schema_id == COPIED else WIDER

    def change_topic(self, table: TableName) -> str:
        return str(table)


class _Source:
    """What the catalog says now."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.now: TableSchema | None = ORDERS
        self.store = store or MemoryStore()
        book, versions = cast("Registrar", _Book()), SchemaVersions(self.store)
        self.fingerprint, self.filenode, self.partitioned = "published so", "1:1:", False
        self.tables = StreamTables(
            PipelineName("p"), "d", Epoch(1), book, lambda _name, _xid: self._published(), lambda _: {}, versions
        )

    def _published(self) -> PublishedTable | None:
        if self.now is None:
            return None
        return PublishedTable(
            self.now, (), self.filenode, self.fingerprint, None, self.partitioned, size=0, toastable=False
        )

    def copied_at(self, generation: int) -> SchemaChanged | None:
        return self.tables.copy_started(CopyStarted(ORDERS.name, COPIED, Lsn(generation), "1:1:", "published so", 0, 0))

    def altered(self, told: TableAltered, lsn: int) -> SchemaChanged | None:
        return self.tables.altered(told, at(lsn), xid=1)

    def met(self, schema: TableSchema, lsn: int) -> SchemaChanged | None:
        """A RELATION message, which has no numbers."""
        columns = [RelationColumn(c.name, c.type_oid, c.modifier, c.key) for c in schema.columns]
        return self.tables.met(Relation(schema.id, *schema.name, schema.identity, tuple(columns)), at(lsn), xid=1)


@pytest.fixture
def source() -> _Source:
    return _Source()


def at(lsn: int) -> Position:
    return Position(Lsn(lsn), 3)


def test_a_rewrite_that_a_copy_does_not_hold_outdates_it_once(source: _Source) -> None:
    source.copied_at(100)

    assert source.altered(REWRITTEN, 99) is None
    assert source.altered(REWRITTEN, 100) == SchemaChanged(ORDERS.name, at(100), COPIED, rewrite=True)
    assert source.altered(REWRITTEN, 101) is None


def test_a_rewrite_of_another_table_outdates_nothing(source: _Source) -> None:
    source.copied_at(100)

    assert source.altered(replace(REWRITTEN, table=TableName("public", "items")), 200) is None


def test_a_rewrite_that_is_met_before_its_copy_is_announced_outdates_the_copy_unless_it_is_newer(
    source: _Source,
) -> None:
    source.altered(REWRITTEN, 100)
    source.altered(ALTERED, 150)

    assert source.copied_at(101) is None
    assert source.copied_at(100) == SchemaChanged(ORDERS.name, at(100), COPIED, rewrite=True)


def test_a_change_that_touched_no_row_is_followed_where_message_and_catalog_agree(source: _Source) -> None:
    source.copied_at(100)

    assert source.altered(ALTERED, 200) is None
    source.now = WIDER
    assert source.altered(ALTERED, 201) is None  # the catalog is ahead
    assert source.altered(told_of(WIDER), 202) == SchemaChanged(ORDERS.name, at(202), WIDENED, rewrite=False)
    assert source.altered(told_of(WIDER), 203) is None


def test_a_table_that_left_the_publication_is_not_followed(source: _Source) -> None:
    source.copied_at(100)
    source.now = None

    assert source.altered(told_of(WIDER), 200) is None


@pytest.mark.parametrize(
    ("now", "partitioned"),
    [
        (a_table(ID, replace(NOTE, key=True)), False),
        (a_table(ID, replace(NOTE, type_oid=INT8)), False),
        (WIDER, True),
    ],
)
def test_another_key_another_type_and_a_new_column_of_a_partitioned_table_need_a_copy(
    source: _Source, now: TableSchema, *, partitioned: bool
) -> None:
    source.copied_at(100)
    source.now, source.partitioned = now, partitioned

    changed = source.altered(told_of(now), 200)

    assert changed is not None
    assert changed.rewrite


def test_a_table_with_another_file_needs_a_copy_for_a_new_shape(source: _Source) -> None:
    """The catalog forgets what rows miss in a column when they are written anew, as by VACUUM FULL."""
    source.copied_at(100)
    source.filenode = "1:2:"

    assert source.altered(ALTERED, 200) is None
    source.now = WIDER
    assert source.altered(told_of(WIDER), 201) == SchemaChanged(ORDERS.name, at(201), WIDENED, rewrite=True)


def test_a_table_that_is_published_otherwise_needs_a_copy_for_a_new_shape(source: _Source) -> None:
    source.copied_at(100)
    source.fingerprint = "published otherwise"

    assert source.altered(ALTERED, 200) is None
    source.now = WIDER
    changed = source.altered(told_of(WIDER), 201)
    assert changed == SchemaChanged(ORDERS.name, at(201), WIDENED, rewrite=True)


def test_columns_that_are_not_published_do_not_matter(source: _Source) -> None:
    source.copied_at(100)

    assert source.altered(told_of(WIDER), 200) is None
    source.now = replace(a_table(ID, replace(NOTE, name="remark")), width=0)
    changed = source.altered(told_of(source.now, a_table(a_column("hidden", number=9))), 201)
    assert changed == SchemaChanged(ORDERS.name, at(201), OTHER, rewrite=False)


def test_a_new_column_under_an_old_name_that_the_catalog_does_not_have_any_more_needs_a_copy(source: _Source) -> None:
    source.copied_at(100)
    anew = replace(NOTE, number=5)
    source.now = a_table(ID, replace(anew, name="later"))

    changed = source.altered(told_of(a_table(ID, anew), dropped=frozenset({"note"})), 200)

    assert changed == SchemaChanged(ORDERS.name, at(200), COPIED, rewrite=True)


def test_a_new_column_in_the_place_and_under_the_name_of_an_old_one_needs_a_copy(source: _Source) -> None:
    """No row would tell the two shapes apart."""
    source.copied_at(100)
    source.now = a_table(ID, replace(NOTE, number=3))

    changed = source.altered(told_of(source.now, dropped=frozenset({"note"})), 200)

    assert changed == SchemaChanged(ORDERS.name, at(200), OTHER, rewrite=True)


def test_a_shape_that_was_followed_is_remembered_over_a_restart(source: _Source) -> None:
    source.copied_at(100)
    source.now = WIDER
    followed = source.altered(told_of(WIDER), 200)
    source.tables.remember_versions()

    restarted = _Source(source.store)
    restarted.now = WIDER
    copy = TableCopy(ORDERS.name, LogId("log"), Lsn(100), COPIED, "1:1:", "published so", True, 0, 0, 0)
    restarted.tables.remember_copy(copy)

    assert followed == SchemaChanged(ORDERS.name, at(200), WIDENED, rewrite=False)
    assert restarted.met(WIDER, 300) is None
    assert restarted.altered(told_of(WIDER), 301) is None


def test_a_copy_from_before_columns_had_numbers_is_outdated_by_whatever_the_triggers_tell_and_by_a_new_shape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = a_table(replace(ID, number=0), replace(NOTE, number=0))
    monkeypatch.setattr(_Book, "table_schema", lambda _self, _id: old)
    told, streamed = _Source(), _Source()
    told.copied_at(100)
    streamed.copied_at(100)

    assert streamed.met(ORDERS, 200) is None
    streamed.now = WIDER
    for changed in (told.altered(ALTERED, 200), streamed.met(WIDER, 201)):
        assert changed is not None
        assert changed.rewrite


@pytest.mark.parametrize(
    "now",
    [
        WIDER,
        a_table(ID),
        a_table(ID, replace(NOTE, name="remark")),
        a_table(ID, NOTE, a_column("more", number=3), a_column("most", number=4)),
    ],
)
def test_a_relation_message_that_agrees_with_the_catalog_is_followed(source: _Source, now: TableSchema) -> None:
    source.copied_at(100)
    source.now = replace(now, width=max(2, now.width))

    assert source.met(ORDERS, 200) is None  # the catalog is ahead
    changed = source.met(now, 201)
    assert changed is not None
    assert not changed.rewrite
    assert source.met(now, 202) is None


@pytest.mark.parametrize(
    "now",
    [
        a_table(ID, replace(NOTE, number=3)),
        a_table(ID, a_column("more", number=3)),
        a_table(ID, NOTE, a_column("more", number=4)),
        a_table(ID, replace(NOTE, type_oid=INT8)),
        replace(WIDER, width=0),
    ],
    ids=["looks alike", "came and went", "one came and is gone", "another type", "not all columns are published"],
)
def test_a_relation_message_that_leaves_a_doubt_needs_a_copy(source: _Source, now: TableSchema) -> None:
    source.copied_at(100)
    source.now = now

    changed = source.met(now, 200)

    assert changed is not None
    assert changed.rewrite


def test_a_relation_message_of_a_table_that_has_other_files_or_members_or_is_partitioned_needs_a_copy() -> None:
    """Values may have been written without an event, or nobody tells what they are."""
    for attribute, value in (("filenode", "1:2:"), ("fingerprint", "published otherwise"), ("partitioned", True)):
        source = _Source()
        source.copied_at(100)
        source.now = WIDER
        setattr(source, attribute, value)

        assert source.met(WIDER, 200) == SchemaChanged(ORDERS.name, at(200), WIDENED, rewrite=True)


def test_a_relation_message_that_the_catalog_is_ahead_of_needs_a_copy(source: _Source) -> None:
    source.copied_at(100)
    source.now = a_table(ID, NOTE, a_column("most", number=4))

    assert source.met(WIDER, 200) == SchemaChanged(ORDERS.name, at(200), OTHER, rewrite=True)


def test_a_shape_that_changes_before_the_copy_is_announced_outdates_it(source: _Source) -> None:
    source.altered(ALTERED, 100)
    source.now = WIDER

    assert source.copied_at(100) == SchemaChanged(ORDERS.name, at(100), WIDENED, rewrite=True)


def test_the_shape_of_a_copy_is_a_version_from_its_snapshot_on(source: _Source) -> None:
    source.copied_at(100)
    source.tables.remember_versions()
    source.copied_at(200)
    source.tables.remember_versions()

    latest = source.store.latest(ORDERS.name)
    assert latest is not None
    assert (latest.since, latest.schema_id, latest.schema) == (Lsn(100), COPIED, ORDERS)


def test_the_last_shape_of_a_transaction_is_its_version_and_one_that_returns_is_another() -> None:
    store = MemoryStore()
    versions = SchemaVersions(store)

    for schema, schema_id, since in (
        (ORDERS, COPIED, 100),
        (WIDER, WIDENED, 200),
        (ORDERS, COPIED, 200),
        (WIDER, WIDENED, 300),
        (ORDERS, COPIED, 400),
    ):
        versions.met(schema, schema_id, Lsn(since))
    versions.remember()
    versions.met(ORDERS, COPIED, Lsn(100))
    versions.met(a_table(*(replace(column, nullable=True) for column in ORDERS.columns)), SchemaId(3), Lsn(400))
    versions.remember()

    found = [store.at(ORDERS.name, Lsn(lsn)) for lsn in (99, 250, 300, 500)]
    assert [version and (version.since, version.schema) for version in found] == [
        None,
        (Lsn(100), ORDERS),
        (Lsn(300), WIDER),
        (Lsn(400), ORDERS),
    ]


def test_what_the_triggers_write_is_read_and_anything_else_is_not() -> None:
    told = (
        b'{"schema": "public", "name": "orders", "rewritten": true, "dropped": ["a"], "columns": '
        b'[{"number": 3, "name": "more", "type": 25, "modifier": -1}]}'
    )

    assert decode_ddl(told) == TableAltered(
        TableName("public", "orders"),
        rewritten=True,
        dropped=frozenset({"a"}),
        columns=(Column("more", 25, "", number=3),),
    )
    for forged in (b"", b"\xff", b"[]", b"1", b'{"schema": "public"}', told.replace(b'["a"]', b"7")):
        assert decode_ddl(forged) is None


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        (None, None),
        ("{7}", "7"),
        ('{"a b"}', "a b"),
        ("{(1,1),(0,0)}", "(1,1),(0,0)"),
        ('{"{1,2}"}', "{1,2}"),
        (r'{"\\x00ff"}', r"\x00ff"),
        ('{""}', ""),
        ('{"NULL"}', "NULL"),
        (r'{"say \"x\""}', 'say "x"'),
    ],
)
def test_what_rows_miss_is_the_one_item_of_an_array(literal: str | None, text: str | None) -> None:
    assert missing_text(literal) == text
