"""The tables as the stream meets them: RELATION messages to transcoders, and what changed about a table.

A table whose shape differs from the one it was copied with, or that was rewritten since, is reported once, and needs a
new copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from capture.catalog_types import TypeLookup, looked_through
from capture.ddl import TableAltered
from capture.pgoutput.messages import Relation
from capture.schema_versions import SchemaVersions
from capture.transcode import choose
from capture.transcode.contract import TableTranscoder
from schemas.checkpoint import CopyStarted, SchemaChanged
from schemas.envelope import envelope_schema, key_schema
from schemas.identifiers import OWN_SCHEMA, Epoch, PipelineName, SchemaId, TableId, TableName
from schemas.lsn import Lsn, Position
from schemas.pg_types.registry import pg_type
from schemas.table import Column, ReplicaIdentity, TableSchema
from schemas.topics import Topics
from stores.kafka_log import KafkaLog, TopicKind
from stores.schema_topic import SchemaTopic

SchemaLookup = Callable[[TableName], TableSchema | None]
"""What the catalog says of a table now; None if it is not published any more."""


@dataclass(slots=True)
class StreamTable:
    """A table in the stream: where its records go and how they are written."""

    topic: str
    transcoder: TableTranscoder
    since: Lsn
    """The commit LSN at which this shape was first seen."""
    errored: bool = False
    """Its changes are left out: it stopped, or it is one of penstock's own."""


@dataclass(frozen=True, slots=True)
class _Copy:
    """A table's newest copy."""

    generation: Lsn
    schema_id: SchemaId
    schema: TableSchema


@dataclass(frozen=True, slots=True)
class _Altered:
    """When the event triggers last told of a table, and when last that values were lost to all copies before."""

    last: Position
    lost: Position | None


class Registrar:
    """Makes topics and schema ids. One for the stream and one for table sync: clients are not shared by threads."""

    def __init__(self, pipeline: PipelineName, log: KafkaLog, schemas: SchemaTopic) -> None:
        self._pipeline = pipeline
        self._topics = Topics(pipeline)
        self._log = log
        self._schemas = schemas

    def change_topic(self, table: TableName) -> str:
        return self.change_topics([table])[table]

    def change_topics(self, tables: Iterable[TableName]) -> dict[TableName, str]:
        topics = {table: self._topics.changes(table) for table in tables}
        self._log.ensure_all(topics.values(), TopicKind.RECORDS)
        return topics

    def new_copy_topic(self, table: TableName, generation: Lsn) -> str:
        topic = self._topics.copy(table, generation)
        self._log.create(topic, TopicKind.RECORDS)
        return topic

    def schema_ids(self, table: TableSchema) -> tuple[SchemaId, SchemaId | None]:
        value = self._schemas.register(envelope_schema(self._pipeline, table), table)
        key = self._schemas.register(key_schema(self._pipeline, table), None) if table.key else None
        return value, key

    def table_schema(self, schema_id: SchemaId) -> TableSchema:
        table = self._schemas.get(schema_id).table
        assert table is not None  # noqa: S101 -- a value schema is registered with its table
        return table


class StreamTables:
    """Every table that the stream has met since it started."""

    def __init__(
        self,
        pipeline: PipelineName,
        database: str,
        epoch: Epoch,
        registrar: Registrar,
        lookup: SchemaLookup,
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
        self._copies: dict[TableName, _Copy] = {}
        self._altered: dict[TableName, _Altered] = {}
        """Of any table: the copy that it concerns may be announced later."""

    def __getitem__(self, relation: TableId) -> StreamTable:
        try:
            return self._by_id[relation]
        except KeyError:
            return self._open(relation, *self._unlisted.pop(relation))

    def remember_copy(self, table: TableName, generation: Lsn, schema_id: SchemaId) -> None:
        self._copies[table] = _Copy(generation, schema_id, self._registrar.table_schema(schema_id))

    def is_copied_after(self, table: TableName, commit_lsn: int) -> bool:
        """Whether the table's copy holds what committed at this LSN, so that nobody asks the stream for it."""
        copy = self._copies.get(table)
        return copy is not None and commit_lsn < copy.generation

    def met(self, relation: Relation, commit_lsn: Lsn, ordinal: int) -> SchemaChanged | None:
        """Takes in a RELATION message, which repeats; tells if the table no longer has the shape it was copied with."""
        catalog = self._lookup(TableName(relation.schema, relation.name))
        schema = self._schema(relation, catalog)
        known = self._by_id.get(relation.id)
        if known is None and catalog is None and schema.name not in self._copies:
            self._unlisted[relation.id] = (schema, commit_lsn)
            return None
        if known is None or not known.transcoder.table.same_shape(schema):
            known = self._open(relation.id, schema, commit_lsn)
        return self._changed(known, Position(commit_lsn, ordinal))

    def _open(self, relation: TableId, schema: TableSchema, since: Lsn) -> StreamTable:
        ids = self._registrar.schema_ids(schema)
        own = schema.name.schema == OWN_SCHEMA
        topic = "" if own else self._registrar.change_topic(schema.name)
        transcoder = choose.transcoder(self._pipeline, self._database, schema, ids, self._epoch)
        self._by_id[relation] = StreamTable(topic, transcoder, since, errored=own)
        if not own:
            self._versions.met(schema, ids[0], since)
        return self._by_id[relation]

    def altered(self, told: TableAltered, position: Position) -> SchemaChanged | None:
        """Takes in what the event triggers say; tells if the table is no longer the one that was copied."""
        before = self._altered.get(told.table)
        lost = position if told.rewritten or told.dropped else before.lost if before is not None else None
        self._altered[told.table] = _Altered(position, lost)
        copy = self._copies.get(told.table)
        if copy is None or position.commit_lsn < copy.generation:
            return None
        if told.rewritten or any(column.name in told.dropped for column in copy.schema.columns):
            return self._outdated(told.table, position, copy.schema_id)
        return self._reshaped(told.table, position, copy)

    def copy_started(self, started: CopyStarted) -> SchemaChanged | None:
        """A copy is under way; its table may already be another one, at a commit that the copy does not hold."""
        self.remember_copy(started.table, started.generation, started.schema_id)
        copy = self._copies[started.table]
        self._versions.met(copy.schema, copy.schema_id, copy.generation)
        changed = None
        for table in self._by_id.values():
            if table.transcoder.table.name == started.table:
                table.errored = False
                changed = changed or self._changed(table, Position(table.since, 0))
        altered = self._altered.get(started.table)
        if changed is not None or altered is None or altered.last.commit_lsn < copy.generation:
            return changed
        if altered.lost is not None and altered.lost.commit_lsn >= copy.generation:
            return self._outdated(started.table, altered.lost, copy.schema_id)
        return self._reshaped(started.table, altered.last, copy)

    def _changed(self, table: StreamTable, position: Position) -> SchemaChanged | None:
        name = table.transcoder.table.name
        copy = self._copies.get(name)
        if copy is None or position.commit_lsn < copy.generation or table.transcoder.table.same_shape(copy.schema):
            return None
        return self._outdated(name, position, table.transcoder.schema_id)

    def _reshaped(self, name: TableName, position: Position, copy: _Copy) -> SchemaChanged | None:
        """By the catalog of now, which may be ahead of the position: a copy is then made a little earlier."""
        catalog = self._lookup(name)
        if catalog is None or catalog.same_shape(copy.schema):
            return None
        return self._outdated(name, position, self._registrar.schema_ids(catalog)[0])

    def _outdated(self, name: TableName, position: Position, schema_id: SchemaId) -> SchemaChanged:
        del self._copies[name]
        return SchemaChanged(name, position, schema_id, rewrite=True)

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
