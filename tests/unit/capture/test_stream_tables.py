from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from capture.ddl import TableAltered, decode_ddl
from capture.schema_versions import SchemaVersions
from capture.tables import Registrar, StreamTables
from schemas.checkpoint import CopyStarted, SchemaChanged
from schemas.identifiers import Epoch, PipelineName, SchemaId, TableName
from schemas.lsn import Lsn, Position
from schemas.table import TableSchema
from stores.memory import MemoryStore
from tests.support.builders import a_column, a_table

ORDERS = a_table()
WIDER = a_table(*ORDERS.columns, a_column("more"))
COPIED, WIDENED = SchemaId(1), SchemaId(2)
ALTERED = TableAltered(ORDERS.name, rewritten=False, dropped=frozenset())
REWRITTEN = replace(ALTERED, rewritten=True)


class _Book:
    """A registrar that knows the two shapes."""

    def schema_ids(self, table: TableSchema) -> tuple[SchemaId, SchemaId | None]:
        return (COPIED if table == ORDERS else WIDENED), None

    def table_schema(self, schema_id: SchemaId) -> TableSchema:
        return ORDERS if schema_id == COPIED else WIDER


class _Source:
    """What the catalog says now."""

    def __init__(self) -> None:
        self.now: TableSchema | None = ORDERS
        self.store = MemoryStore()
        book, versions = cast("Registrar", _Book()), SchemaVersions(self.store)
        self.tables = StreamTables(PipelineName("p"), "d", Epoch(1), book, lambda _: self.now, lambda _: {}, versions)

    def copied_at(self, generation: int) -> SchemaChanged | None:
        return self.tables.copy_started(CopyStarted(ORDERS.name, COPIED, Lsn(generation), "", "", 0, 0))


@pytest.fixture
def source() -> _Source:
    return _Source()


def at(lsn: int) -> Position:
    return Position(Lsn(lsn), 3)


def test_a_rewrite_that_a_copy_does_not_hold_outdates_it_once(source: _Source) -> None:
    source.copied_at(100)

    assert source.tables.altered(REWRITTEN, at(99)) is None
    assert source.tables.altered(REWRITTEN, at(100)) == SchemaChanged(ORDERS.name, at(100), COPIED, rewrite=True)
    assert source.tables.altered(REWRITTEN, at(101)) is None


def test_a_rewrite_of_another_table_outdates_nothing(source: _Source) -> None:
    source.copied_at(100)

    assert source.tables.altered(replace(REWRITTEN, table=TableName("public", "items")), at(200)) is None


def test_a_rewrite_that_is_met_before_its_copy_is_announced_outdates_the_copy_unless_it_is_newer(
    source: _Source,
) -> None:
    source.tables.altered(REWRITTEN, at(100))
    source.tables.altered(ALTERED, at(150))

    assert source.copied_at(101) is None
    assert source.copied_at(100) == SchemaChanged(ORDERS.name, at(100), COPIED, rewrite=True)


def test_an_alteration_outdates_a_copy_of_another_shape_only(source: _Source) -> None:
    source.copied_at(100)

    assert source.tables.altered(ALTERED, at(200)) is None
    source.now = None
    assert source.tables.altered(ALTERED, at(201)) is None
    source.now = WIDER
    assert source.tables.altered(ALTERED, at(202)) == SchemaChanged(ORDERS.name, at(202), WIDENED, rewrite=True)


def test_a_shape_that_changes_before_the_copy_is_announced_outdates_it(source: _Source) -> None:
    source.tables.altered(ALTERED, at(100))
    source.now = WIDER

    assert source.copied_at(100) == SchemaChanged(ORDERS.name, at(100), WIDENED, rewrite=True)


def test_a_dropped_column_outdates_a_copy_that_has_it(source: _Source) -> None:
    source.copied_at(100)

    assert source.tables.altered(replace(ALTERED, dropped=frozenset({"never copied"})), at(200)) is None
    assert source.tables.altered(replace(ALTERED, dropped=frozenset({"note"})), at(201)) is not None


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
    told = b'{"schema": "public", "name": "orders", "rewritten": true, "dropped": ["a"], "columns": [{"number": 1}]}'

    assert decode_ddl(told) == TableAltered(TableName("public", "orders"), rewritten=True, dropped=frozenset({"a"}))
    for forged in (b"", b"\xff", b"[]", b"1", b'{"schema": "public"}', told.replace(b'["a"]', b"7")):
        assert decode_ddl(forged) is None
