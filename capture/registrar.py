"""Topics and schema ids of a pipeline, made where they are not there."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.envelope import envelope_schema, key_schema
from schemas.identifiers import PipelineName, SchemaId, TableName
from schemas.lsn import Lsn
from schemas.table import TableSchema
from schemas.topics import Topics
from stores.kafka_log import KafkaLog, TopicKind
from stores.schema_topic import SchemaTopic


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

    def ensure_copy_topic(self, table: TableName, generation: Lsn) -> None:
        """Of a copy without rows, to which nobody writes."""
        self._log.ensure(self._topics.copy(table, generation), TopicKind.RECORDS)

    def schema_ids(self, table: TableSchema) -> tuple[SchemaId, SchemaId | None]:
        """Under the subjects that every reader of the change topic expects."""
        topic = self._topics.changes(table.name)
        value = self._schemas.register(f"{topic}-value", envelope_schema(self._pipeline, table), table)
        key = self._schemas.register(f"{topic}-key", key_schema(self._pipeline, table), None) if table.key else None
        return value, key

    def table_schema(self, schema_id: SchemaId) -> TableSchema:
        table = self._schemas.get(schema_id).table
        assert table is not None  # noqa: S101 -- a value schema is registered with its table
        return table
