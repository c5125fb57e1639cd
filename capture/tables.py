"""The tables as the stream meets them: RELATION messages to transcoders, and what changed about a table.

Whether a table is still the one that was copied is judged in `copied_shapes.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from capture.catalog_types import TypeLookup, looked_through
from capture.copied_shapes import CopiedShapes, TableLookup
from capture.ddl import TableAltered
from capture.pgoutput.messages import Relation
from capture.registrar import Registrar
from capture.schema_versions import SchemaVersions
from capture.transcode import choose
from capture.transcode.contract import TableTranscoder
from schemas.checkpoint import CopyStarted, SchemaChanged
from schemas.identifiers import OWN_SCHEMA, Epoch, PipelineName, SchemaId, TableId, TableName
from schemas.lsn import Lsn, Position
from schemas.pg_types.registry import pg_type
from schemas.table import Column, ReplicaIdentity, TableSchema
from schemas.topics import Topics
from stores.state import TableCopy


@dataclass(slots=True)
class StreamTable:
    """A table in the stream: where its records go and how they are written."""

    topic: str
    transcoder: TableTranscoder
    since: Lsn
    """The commit LSN at which this shape was first seen."""
    errored: bool = False
    """Its changes are left out: it stopped, it is one of penstock's own, or no topic can be called like it."""


_NO_ID = SchemaId(0)
"""In the records of a table that has no topic: they are written nowhere."""


class StreamTables:
    """Every table that the stream has met since it started."""

    def __init__(
        self,
        pipeline: PipelineName,
        database: str,
        epoch: Epoch,
        registrar: Registrar,
        lookup: TableLookup,
        types: TypeLookup,
        versions: SchemaVersions,
    ) -> None:
        self._pipeline = pipeline
        self._database = database
        self._epoch = epoch
        self._registrar = registrar
        self._lookup = lookup
        self._types = types
        self._versions = versions
        self._by_id: dict[TableId, StreamTable] = {}
        self._unlisted: dict[TableId, tuple[TableSchema, Lsn]] = {}
        """Met, but not in the publication's list: a leaf that is published by its root, and has no changes of its own,
        or a table that has left meanwhile."""
        self._copied = CopiedShapes(registrar, lookup, types, versions)

    def __getitem__(self, relation: TableId) -> StreamTable:
        try:
            return self._by_id[relation]
        except KeyError:
            return self._open(relation, *self._unlisted.pop(relation))

    def remember_copy(self, copied: TableCopy) -> None:
        self._copied.remember(copied)

    def is_copied_after(self, table: TableName, commit_lsn: int) -> bool:
        """Whether the table's copy holds what committed at this LSN, so that nobody asks the stream for it."""
        return self._copied.is_copied_after(table, commit_lsn)

    def met(self, relation: Relation, position: Position, xid: int) -> SchemaChanged | None:
        """Takes in a RELATION message, which repeats; tells if the table has another shape now, or needs a new copy."""
        published = self._lookup(TableName(relation.schema, relation.name), xid)
        catalog = published.schema if published is not None else None
        schema = self._schema(relation, catalog)
        known = self._by_id.get(relation.id)
        if known is None and catalog is None and schema.name not in self._copied:
            self._unlisted[relation.id] = (schema, position.commit_lsn)
            return None
        if known is None or not known.transcoder.table.same_shape(schema):
            known = self._open(relation.id, schema, position.commit_lsn)
        return self._copied.compared(schema, known.transcoder.schema_id, position, published)

    def _open(self, relation: TableId, schema: TableSchema, since: Lsn) -> StreamTable:
        too_long = Topics(self._pipeline).too_long(schema.name) is not None
        left_out = schema.name.schema == OWN_SCHEMA or too_long
        ids = (_NO_ID, _NO_ID if schema.key else None) if too_long else self._registrar.schema_ids(schema)
        topic = "" if left_out else self._registrar.change_topic(schema.name)
        transcoder = choose.transcoder(self._pipeline, self._database, schema, ids, self._epoch)
        self._by_id[relation] = StreamTable(topic, transcoder, since, errored=left_out)
        if not left_out:
            self._versions.met(schema, ids[0], since)
        return self._by_id[relation]

    def altered(self, told: TableAltered, position: Position, xid: int) -> SchemaChanged | None:
        """Takes in what the event triggers say; tells if the table has another shape now, or needs a new copy."""
        return self._copied.altered(told, position, xid)

    def copy_started(self, started: CopyStarted) -> SchemaChanged | None:
        """A copy is under way; its table may already be another one, at a commit that the copy does not hold."""
        self._copied.started(started)
        changed = None
        for table in self._by_id.values():
            if table.transcoder.table.name == started.table:
                table.errored = False
                met = (table.transcoder.table, table.transcoder.schema_id, Position(table.since, 0))
                changed = changed or self._copied.compared(*met)
        return changed or self._copied.altered_since(started.table)

    def remember_versions(self) -> None:
        """To be called between transactions, before a checkpoint."""
        self._versions.remember()

    def _schema(self, relation: Relation, catalog: TableSchema | None) -> TableSchema:
        """The catalog's schema where it has the stream's shape, for it knows more; else the stream's own."""
        name = TableName(relation.schema, relation.name)
        keyed = relation.identity in (ReplicaIdentity.DEFAULT, ReplicaIdentity.INDEX)
        key = (
            {column.name for column in relation.columns if column.key}
            if keyed
            else {column.name for column in (catalog.key if catalog else ())}
        )
        types = self._types([column.type_oid for column in relation.columns])
        streamed = TableSchema(
            id=relation.id,
            name=name,
            identity=relation.identity,
            columns=tuple(
                looked_through(
                    Column(
                        name=column.name,
                        type_oid=column.type_oid,
                        type_name=(types.get(column.type_oid) or pg_type(column.type_oid)).name,
                        modifier=column.modifier,
                        key=column.name in key,
                    ),
                    types,
                )
                for column in relation.columns
            ),
        )
        return catalog if catalog is not None and catalog.same_shape(streamed) else streamed
