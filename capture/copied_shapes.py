"""The shape that each copied table has at destinations, and whether the source still agrees with it.

It is that of the copy, and changes where the stream and the catalog say the same and no row was touched: then
destinations make the same change. In all other cases the table is outdated, which is told once, and needs a new copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from capture.catalog_types import TypeLookup, looked_through
from capture.ddl import TableAltered
from capture.publication import PublishedTable
from capture.registrar import Registrar
from capture.schema_versions import SchemaVersions
from capture.table_sync.membership import members
from schemas.checkpoint import CopyStarted, SchemaChanged
from schemas.evolution import ColumnAdded, changes
from schemas.identifiers import SchemaId, TableName
from schemas.lsn import Lsn, Position
from schemas.table import Column, TableSchema
from stores.state import TableCopy

TableLookup = Callable[[TableName, int], PublishedTable | None]
"""What the catalog says of a table, once everybody can see a transaction; None if it is not published any more."""


@dataclass(frozen=True, slots=True)
class _Copy:
    """A table's newest copy, and the shape that it has by now."""

    generation: Lsn
    filenode: str
    fingerprint: str
    schema_id: SchemaId
    schema: TableSchema


@dataclass(frozen=True, slots=True)
class _Altered:
    """When the event triggers last told of a table, and when last that values were lost to all copies before."""

    last: Position
    xid: int
    lost: Position | None


class CopiedShapes:
    """Every table that was copied and is not outdated."""

    def __init__(self, registrar: Registrar, lookup: TableLookup, types: TypeLookup, versions: SchemaVersions) -> None:
        self._registrar = registrar
        self._lookup = lookup
        self._types = types
        self._versions = versions
        self._copies: dict[TableName, _Copy] = {}
        self._altered: dict[TableName, _Altered] = {}
        """Of any table: the copy that it concerns may be announced later."""

    def __contains__(self, table: TableName) -> bool:
        return table in self._copies

    def is_copied_after(self, table: TableName, commit_lsn: int) -> bool:
        """Whether the table's copy holds what committed at this LSN, so that nobody asks the stream for it."""
        copy = self._copies.get(table)
        return copy is not None and commit_lsn < copy.generation

    def remember(self, copied: TableCopy) -> None:
        """A copy of an epoch before, with the last shape in which its table was followed."""
        schema_id, schema = copied.schema_id, self._registrar.table_schema(copied.schema_id)
        version = self._versions.latest(copied.table)
        if version is not None and version.since >= copied.generation and changes(schema, version.schema) is not None:
            schema_id, schema = version.schema_id, version.schema
        self._copies[copied.table] = _Copy(copied.generation, copied.filenode, copied.fingerprint, schema_id, schema)

    def started(self, started: CopyStarted) -> None:
        schema_id, schema = started.schema_id, self._registrar.table_schema(started.schema_id)
        self._copies[started.table] = _Copy(
            started.generation, started.filenode, started.fingerprint, schema_id, schema
        )
        self._versions.met(schema, schema_id, started.generation)

    def compared(
        self, streamed: TableSchema, schema_id: SchemaId, position: Position, published: PublishedTable | None = None
    ) -> SchemaChanged | None:
        """With what a RELATION message says of the table. It is followed only to what is `published`."""
        copy = self._without(streamed.name, position)
        if copy is None or streamed.same_columns(copy.schema):
            return None
        if published is None or not published.schema.same_columns(streamed):
            return self._outdated(streamed.name, position, schema_id)
        if not _is_the_only_way(copy.schema, published.schema):
            return self._outdated(streamed.name, position, schema_id)
        return self._followed(copy, published, position)

    def altered(self, told: TableAltered, position: Position, xid: int) -> SchemaChanged | None:
        """With what the event triggers say of the table."""
        before = self._altered.get(told.table)
        lost = position if told.rewritten or told.dropped else before.lost if before is not None else None
        self._altered[told.table] = _Altered(position, xid, lost)
        copy = self._without(told.table, position)
        if copy is None:
            return None
        if told.rewritten:
            return self._outdated(told.table, position, copy.schema_id)
        published = self._lookup(told.table, xid)
        if published is None or not self._agree(told, copy, published.schema):
            # The catalog is ahead: a later message agrees with it, or a row shows another shape before that.
            return self._outdated(told.table, position, copy.schema_id) if _looks_alike(told, copy.schema) else None
        if published.schema.same_columns(copy.schema) and not _looks_alike(told, copy.schema):
            return None
        return self._followed(copy, published, position)

    def altered_since(self, table: TableName) -> SchemaChanged | None:
        """What the event triggers told before the table's copy was announced, and the copy does not hold."""
        altered = self._altered.get(table)
        copy = self._without(table, altered.last) if altered is not None else None
        if altered is None or copy is None:
            return None
        if altered.lost is not None and altered.lost.commit_lsn >= copy.generation:
            return self._outdated(table, altered.lost, copy.schema_id)
        published = self._lookup(table, altered.xid)
        if published is None or published.schema.same_columns(copy.schema):
            return None
        return self._outdated(table, altered.last, self._registrar.schema_ids(published.schema)[0])

    def _without(self, table: TableName, position: Position) -> _Copy | None:
        """The table's copy, if it does not hold what is at the position."""
        copy = self._copies.get(table)
        return copy if copy is not None and position.commit_lsn >= copy.generation else None

    def _agree(self, told: TableAltered, copy: _Copy, catalog: TableSchema) -> bool:
        """Whether the message has the columns that are published now, as they are now.

        It may have more only where some are not published, and then none that destinations have."""
        types = self._types([column.type_oid for column in told.columns])
        found = {column.number: looked_through(column, types) for column in told.columns}
        more = found.keys() - {column.number for column in catalog.columns}
        hidden = catalog.width == 0 and more.isdisjoint(column.number for column in copy.schema.columns)
        return (not more or hidden) and all(_is(found.get(column.number), column) for column in catalog.columns)

    def _followed(self, copy: _Copy, published: PublishedTable, position: Position) -> SchemaChanged:
        """The table has the catalog's shape from here on, if no row was touched.

        Another file may hold other values, and the catalog then forgets what older rows have in a new column; of a
        partitioned table it never says it. A table that is published otherwise may have values that were never told.
        Two shapes that look alike no row would tell apart."""
        catalog = _as_far_as_known(copy.schema, published.schema)
        schema_id = self._registrar.schema_ids(catalog)[0]
        made = changes(copy.schema, catalog)
        if (
            made is None
            or catalog.same_shape(copy.schema)
            or published.fingerprint != copy.fingerprint
            or not members(copy.filenode) <= members(published.filenode)
            or (published.partitioned and any(isinstance(change, ColumnAdded) for change in made))
        ):
            return self._outdated(catalog.name, position, schema_id)
        self._copies[catalog.name] = replace(copy, schema_id=schema_id, schema=catalog)
        self._versions.met(catalog, schema_id, position.commit_lsn)
        return SchemaChanged(catalog.name, position, schema_id, rewrite=False)

    def _outdated(self, name: TableName, position: Position, schema_id: SchemaId) -> SchemaChanged:
        del self._copies[name]
        return SchemaChanged(name, position, schema_id, rewrite=True)


def _as_far_as_known(before: TableSchema, catalog: TableSchema) -> TableSchema:
    """A column that came and went again may have done so only later: it does not count before it is met."""
    numbers = [column.number for column in catalog.columns]
    return replace(catalog, width=max(before.width, *numbers)) if catalog.width else catalog


def _is(told: Column | None, column: Column) -> bool:
    return told is not None and all(
        getattr(told, part) == getattr(column, part) for part in ("name", "type_oid", "modifier", "delimiter")
    )


def _is_the_only_way(before: TableSchema, catalog: TableSchema) -> bool:
    """Whether the columns of a RELATION message must be those of the catalog, given that names and types agree.

    A message has no numbers, and the catalog may be of a later moment. Where every column that came is still there, and
    columns came or went but not both, a table that had as many columns at the message had these."""
    old, new = ({column.number for column in schema.columns} for schema in (before, catalog))
    return catalog.width == before.width + len(new - old) and (new >= old or old >= new)


def _looks_alike(told: TableAltered, schema: TableSchema) -> bool:
    """Whether all these names are there, and not all of them name the same columns: no row would show it."""
    numbers = {column.name: column.number for column in told.columns}
    found = [numbers.get(column.name) for column in schema.columns]
    return None not in found and found != [column.number for column in schema.columns]
