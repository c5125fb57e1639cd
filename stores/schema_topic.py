"""Schema id <-> schema, kept on the schema topic, so that no registry service is needed.

A value schema travels with the table schema it was made from: who reads a record finds there names, types and keys.
Where a registry service is configured, it allots the ids, for other readers; all is on the topic as well, so that
nobody but capture ever asks the service.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import structlog

from schemas.connections import KafkaConfig
from schemas.errors import LogError
from schemas.failpoints import failpoint
from schemas.identifiers import SchemaId, TableId, TableName
from schemas.registered import registered
from schemas.table import TableSchema
from schemas.wire import derived_id
from stores.kafka_errors import BrokerUnreachable
from stores.kafka_log import KafkaLog
from stores.record_writer import RecordWriter
from stores.schema_registry import SchemaRegistry

log = structlog.get_logger(__name__)

_SHARED = (
    "Where `kafka.schema_registry` is another one than before, or has lost its schemas: restore them, or take the "
    "setting out, and records get ids of penstock's own again. Else change any column of one of the tables."
)


class UnknownSchema(LogError):
    """A record names a schema that the schema topic does not hold."""

    solution = "Restore the schema topic, or run `penstock resync TABLE`."


@dataclass(frozen=True)
class RegisteredSchema:
    """An Avro schema, and for values the table it describes."""

    id: SchemaId
    avro: dict[str, Any]
    table: TableSchema | None


def _registered(key: bytes, value: bytes) -> RegisteredSchema:
    content = json.loads(value)
    table = TableSchema.from_json(content["table"]) if content["table"] else None
    return RegisteredSchema(SchemaId(int(key)), content["avro"], table)


class SchemaTopic:
    """The book of schemas. Reads come from memory; an unknown id makes it read the topic once more."""

    def __init__(self, config: KafkaConfig, log: KafkaLog, topic: str) -> None:
        self._config = config
        self._log = log
        self._topic = topic
        self._registry = SchemaRegistry(config.schema_registry) if config.schema_registry else None
        self._known: dict[SchemaId, RegisteredSchema] = {}
        self._registered: dict[str, SchemaId] = {}
        """By content, what was registered by this object."""
        self._read_to = 0
        self._records: RecordWriter | None = None

    def get(self, wanted: SchemaId) -> RegisteredSchema:
        if wanted not in self._known:
            self.refresh()
        try:
            return self._known[wanted]
        except KeyError:
            raise UnknownSchema(f"Schema {wanted} is not on the topic {self._topic}.") from None

    def shapes_of(self, table: TableId) -> list[TableSchema]:
        """Every shape that the relation ever had, under all of its names, as far as the topic was read."""
        return [each.table for each in self._known.values() if each.table is not None and each.table.id == table]

    def tables(self) -> set[TableName]:
        """Every name that a table ever had, as far as the topic was read."""
        return {each.table.name for each in self._known.values() if each.table is not None}

    def register(self, subject: str, avro: dict[str, Any], table: TableSchema | None) -> SchemaId:
        """Durable on the topic, and in the registry, when it returns. Registering the same again changes nothing."""
        content = {"avro": avro, "table": table.to_json() if table else None}
        known_as = json.dumps(content)
        if known_as not in self._registered:
            schema = RegisteredSchema(self._allotted(subject, avro, derived_id(content)), avro, table)
            self._write_where_new(schema, content)
            self._registered[known_as] = schema.id
        return self._registered[known_as]

    def _allotted(self, subject: str, avro: dict[str, Any], derived: SchemaId) -> SchemaId:
        return derived if self._registry is None else self._registry.register(subject, registered(avro, derived))

    def _write_where_new(self, schema: RegisteredSchema, content: dict[str, Any]) -> None:
        if schema.id not in self._known:
            self.refresh()
        known = self._known.get(schema.id)
        if known is None:
            self._write(schema.id, content)
            self._known[schema.id] = schema
        elif known != schema:
            raise LogError(f"Two schemas share the id {schema.id}.", solution=_SHARED)

    def refresh(self) -> None:
        """Takes in what is on the topic by now."""
        end = self._log.ends([self._topic])[self._topic][0]
        for record in self._log.read(self._topic, self._read_to, end):
            if record.key is None or record.value is None:
                continue
            try:
                found = _registered(record.key, record.value)
            except (LookupError, ValueError, TypeError, AttributeError, RecursionError):
                log.warning("schema is not of penstock, passed over", topic=record.topic, offset=record.offset)
                continue
            self._known[found.id] = found
        self._read_to = end

    def _write(self, schema: SchemaId, content: dict[str, Any]) -> None:
        if self._records is None:  # kept: to make one takes longer than to write many schemas
            self._records = RecordWriter(self._config, {})
        failpoint("schema.registering", BrokerUnreachable)
        patience = self._config.patience.total_seconds()
        self._records.write(self._topic, json.dumps(content).encode(), str(schema).encode(), patience)
        failpoint("schema.registered", BrokerUnreachable)
