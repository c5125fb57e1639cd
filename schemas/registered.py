"""A schema of records in, the same schema as it stands in a registry out: with properties that change no byte.

Two readers need them. Kafka Connect does not know the logical types of Avro that count microseconds, and takes the
name under which Debezium writes such a column. A registry gives one id to schemas that are equal, and shapes that
differ in their table alone have one schema.
"""

from __future__ import annotations

from typing import Any

from schemas.identifiers import SchemaId

SHAPE = "penstock.shape"
CONNECT_NAME = "connect.name"

_NAMES = {
    "time-micros": "io.debezium.time.MicroTime",
    "local-timestamp-micros": "io.debezium.time.MicroTimestamp",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
    "uuid": "io.debezium.data.Uuid",
}


def registered(avro: dict[str, Any], shape: SchemaId) -> dict[str, Any]:
    return {**_named(avro), SHAPE: shape}


def _named(avro: Any) -> Any:  # noqa: ANN401 -- a schema is a text, an object or a list of schemas
    match avro:
        case list():
            return [_named(branch) for branch in avro]
        case {"type": "record", "fields": fields}:
            return {**avro, "fields": [{**field, "type": _named(field["type"])} for field in fields]}
        case {"type": "array", "items": items}:
            return {**avro, "items": _named(items)}
        case {"logicalType": logical} if logical in _NAMES:
            return {**avro, CONNECT_NAME: _NAMES[logical]}
        case _:
            return avro
