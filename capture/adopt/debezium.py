"""Records that Debezium's Postgres connector wrote in Avro: to the shape of their table, and to values of that shape.

A type is known by the name that Connect gives it. What Debezium wrote as text under a name that is not known here is
carried as text; any other unknown type is refused. Nothing is rounded: what Debezium left out before is not there.
"""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, TypeAlias

import fastavro
from fastavro.schema import expand_schema

from capture.pgoutput.messages import UNCHANGED
from schemas.errors import LogError
from schemas.identifiers import SchemaId, TableId, TableName
from schemas.pg_types.dates import TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY, parse_timestamp
from schemas.pg_types.pg_type import ValueNotCarried
from schemas.pg_types.registry import TYPES, pg_type
from schemas.table import Column, TableSchema
from schemas.wire import HEADER_BYTES, NotOurRecord, derived_id, schema_id_of
from stores.schema_registry import SchemaMissing

Convert: TypeAlias = Callable[[Any], Any]
Row: TypeAlias = list[Any]
"""A value for each column, or UNCHANGED."""

_BOOL, _BYTEA, _INT8, _INT2, _INT4, _TEXT = 16, 17, 20, 21, 23, 25
_FLOAT4, _FLOAT8, _JSON, _XML, _NUMERIC, _UUID = 700, 701, 114, 142, 1700, 2950
_DATE, _TIME, _TIMESTAMP, _TIMESTAMPTZ = 1082, 1083, 1114, 1184
_MODIFIER_BEGINS_AT = 4
_INFINITIES = {
    9_223_372_036_825_200_000: TIMESTAMP_INFINITY,
    -9_223_372_036_832_400_000: TIMESTAMP_MINUS_INFINITY,
}
"""Of a timestamp: what the JDBC driver takes for them, in microseconds."""
CONFLUENT = (
    "Have the connector write Avro in Confluent's wire format; with Apicurio's converter "
    "`apicurio.registry.as-confluent = true`, `apicurio.registry.use-id = contentId` and "
    "`apicurio.registry.headers.enabled = false`. Then have it write the table to a new topic, with a snapshot."
)
_ISO = re.compile(r"([+-]?)(\d{4,})(-.*)T(.*)Z")


class NotAdopted(LogError):
    """A topic, or a record on it, is not what penstock can go on with. Its table is left out; the others go on."""

    solution = "Leave the topic out of `adopt.topics`, or capture the table instead."


@dataclass(frozen=True)
class Reading:
    """How the rows of one of Debezium's schemas are read."""

    columns: tuple[Column, ...]
    """Without numbers: Debezium tells none."""
    converts: tuple[Convert, ...]

    def row(self, image: Mapping[str, Any], placeholders: Collection[object]) -> Row:
        return [
            self._value(column, convert, image[column.name], placeholders)
            for column, convert in zip(self.columns, self.converts, strict=True)
        ]

    def key_row(self, key: Mapping[str, Any]) -> Row:
        """The row of which nothing but the key is known."""
        return [
            self._value(column, convert, key[column.name], ()) if column.key else None
            for column, convert in zip(self.columns, self.converts, strict=True)
        ]

    @staticmethod
    def _value(column: Column, convert: Convert, value: Any, placeholders: Collection[object]) -> Any:  # noqa: ANN401
        if value is None:
            return None
        if isinstance(value, str | bytes | list) and value in placeholders:
            return UNCHANGED
        try:
            return convert(value)
        except ValueError:
            raise ValueNotCarried(
                f"Column {column.name} has a value that Debezium's type does not allow.",
                solution="Correct the row, or leave the column out (`column.exclude.list` of the connector).",
            ) from None


def placeholders(text: str) -> tuple[object, ...]:
    """What the connector writes in the place of an unchanged TOASTed value: in text and bytes, arrays, and hstore."""
    as_numbers = list(text.encode())
    return text, text.encode(), [text], as_numbers, json.dumps({text: text}, separators=(",", ":"))


class DebeziumSchemas:
    """The schemas that records name, as the registry has them; each is asked for once."""

    def __init__(self, registered: Callable[[SchemaId], Any]) -> None:
        self._registered = registered
        self._known: dict[SchemaId, Any] = {}

    def decoded(self, record: bytes) -> dict[str, Any]:
        try:
            schema = self._schema(schema_id_of(record))
        except NotOurRecord as error:
            raise NotAdopted(error.reason, solution=CONFLUENT) from None
        try:
            value = fastavro.schemaless_reader(io.BytesIO(record[HEADER_BYTES:]), schema, None)
        except (EOFError, ValueError, IndexError, KeyError, TypeError) as error:
            raise NotAdopted("A record is not what its schema says.") from error
        if not isinstance(value, dict):
            raise NotAdopted("A key or a value is no record in Avro.")
        return value

    def reading(self, envelope: bytes, key: Collection[str]) -> Reading:
        """How the rows of this record, and of all others with its schema, are read."""
        schema: Any = expand_schema(self._schema(schema_id_of(envelope)))
        row = next(_without_null(field["type"]) for field in schema["fields"] if field["name"] == "after")
        strange = set(key) - {field["name"] for field in row["fields"]}
        if strange:
            raise NotAdopted(
                f"The key of its records has {', '.join(sorted(strange))}, which no column of the table is.",
                solution="Take the transformation out that changes keys, or leave no column of the key out.",
            )
        found = [_column(field["name"], field["type"], key) for field in row["fields"]]
        return Reading(tuple(column for column, _ in found), tuple(convert for _, convert in found))

    def _schema(self, wanted: SchemaId) -> Any:  # noqa: ANN401 -- as fastavro has it
        if wanted not in self._known:
            self._known[wanted] = fastavro.parse_schema(_without_logical_types(self._asked(wanted)))
        return self._known[wanted]

    def _asked(self, wanted: SchemaId) -> Any:  # noqa: ANN401 -- Avro is JSON
        try:
            return self._registered(wanted)
        except SchemaMissing as error:
            raise NotAdopted(error.reason, solution="Restore the schema in the connector's registry.") from None
        except LogError as error:
            error.solution = error.solution.replace("kafka.schema_registry", "adopt.schema_registry")
            raise


def followed(before: TableSchema | None, name: TableName, columns: tuple[Column, ...]) -> TableSchema:
    """The shape of a table with these columns: one that was there keeps its number, others have the next ones."""
    numbers = {column.name: column.number for column in before.columns} if before else {}
    new = itertools.count(before.width + 1 if before else 1)
    numbered = tuple(replace(column, number=numbers.get(column.name) or next(new)) for column in columns)
    width = max([before.width if before else 0, *[column.number for column in numbered]])
    return TableSchema(table_id(name), name, numbered, width=width)


def table_id(name: TableName) -> TableId:
    """Debezium does not tell a table's oid."""
    return TableId(derived_id(list(name)))


def _without_logical_types(avro: Any) -> Any:  # noqa: ANN401 -- Avro is JSON
    """So that values come as they were written: Python's dates and decimals hold less than Postgres does."""
    match avro:
        case dict():
            return {name: _without_logical_types(value) for name, value in avro.items() if name != "logicalType"}
        case list():
            return [_without_logical_types(each) for each in avro]
        case _:
            return avro


def _without_null(avro: Any) -> dict[str, Any]:  # noqa: ANN401
    branches = [each for each in avro if each != "null"] if isinstance(avro, list) else [avro]
    (only,) = branches
    return only if isinstance(only, dict) else {"type": only}


def _column(name: str, avro: Any, key: Collection[str]) -> tuple[Column, Convert]:  # noqa: ANN401
    found = _type(_without_null(avro))
    if found is None:
        kind = _without_null(avro)
        raise NotAdopted(
            f"Column {name} has the type {kind.get('connect.name') or kind['type']}, which penstock does not know.",
            solution=f"Leave the column out: `column.exclude.list` of the connector; or capture the table: {_CAPTURE}",
        )
    oid, modifier, convert = found
    return Column(name, oid, pg_type(oid).name, modifier, key=name in key), convert


_CAPTURE = "`penstock capture` needs nothing of Debezium."


def _type(avro: dict[str, Any]) -> tuple[int, int, Convert] | None:
    """Oid, modifier and conversion; None: not known."""
    name = avro.get("connect.name")
    if avro["type"] == "array":
        return _array(_type(_without_null(avro["items"])))
    if name == "org.apache.kafka.connect.data.Decimal":
        return _decimal(avro["connect.parameters"])
    if name in _NAMED:
        oid, convert = _NAMED[name]
        return oid, -1, convert
    if avro["type"] == "string":
        return _TEXT, -1, _same
    plain = _PLAIN.get((avro["type"], avro.get("connect.type"))) if name is None else None
    return None if plain is None else (plain, -1, _same)


def _array(item: tuple[int, int, Convert] | None) -> tuple[int, int, Convert] | None:
    oid, modifier, convert = item or (0, -1, _same)
    array_oid = TYPES[oid].array_oid if oid in TYPES else None
    if array_oid is None:
        return None
    return array_oid, modifier, lambda items: [None if each is None else convert(each) for each in items]


def _decimal(parameters: Mapping[str, str]) -> tuple[int, int, Convert]:
    scale, precision = int(parameters["scale"]), parameters.get("connect.decimal.precision")
    modifier = -1 if precision is None else (int(precision) << 16 | scale & 0x7FF) + _MODIFIER_BEGINS_AT
    return _NUMERIC, modifier, lambda unscaled: _number(unscaled, scale)


def _same(value: Any) -> Any:  # noqa: ANN401
    return value


def _number(unscaled: bytes, scale: int) -> str:
    """Every digit, as Postgres prints it."""
    exact = Decimal(int.from_bytes(unscaled, "big", signed=True)).as_tuple()
    return format(Decimal((exact.sign, exact.digits, -scale)), "f")


def _moment(microseconds: int) -> int:
    return _INFINITIES.get(microseconds, microseconds)


def _zoned(text: str) -> int:
    """A moment in UTC, in ISO 8601, whose years have a sign before 1 and after 9999; or an infinity."""
    found = _ISO.fullmatch(text)
    if found is None:
        return parse_timestamp(text)
    year = -int(found[2]) if found[1] == "-" else int(found[2])
    shown, era = (1 - year, " BC") if year < 1 else (year, "")
    return parse_timestamp(f"{shown:04d}{found[3]} {found[4]}+00{era}")


_PLAIN = {
    ("boolean", None): _BOOL,
    ("int", None): _INT4,
    ("int", "int16"): _INT2,
    ("long", None): _INT8,
    ("float", None): _FLOAT4,
    ("double", None): _FLOAT8,
    ("bytes", None): _BYTEA,
}
"""By the type in Avro, and what Connect says of it."""
_NAMED: dict[str | None, tuple[int, Convert]] = {
    "io.debezium.data.Uuid": (_UUID, _same),
    "io.debezium.data.Json": (_JSON, _same),
    "io.debezium.data.Xml": (_XML, _same),
    "io.debezium.data.Bits": (_BYTEA, _same),
    "io.debezium.data.VariableScaleDecimal": (_NUMERIC, lambda value: _number(value["value"], value["scale"])),
    "io.debezium.time.Date": (_DATE, _same),
    "io.debezium.time.Time": (_TIME, lambda milliseconds: milliseconds * 1000),
    "io.debezium.time.MicroTime": (_TIME, _same),
    "io.debezium.time.Timestamp": (_TIMESTAMP, lambda milliseconds: _moment(milliseconds * 1000)),
    "io.debezium.time.MicroTimestamp": (_TIMESTAMP, _moment),
    "io.debezium.time.ZonedTimestamp": (_TIMESTAMPTZ, _zoned),
    "io.debezium.time.MicroDuration": (_INT8, _same),
    "org.apache.kafka.connect.data.Date": (_DATE, _same),
    "org.apache.kafka.connect.data.Time": (_TIME, lambda milliseconds: milliseconds * 1000),
    "org.apache.kafka.connect.data.Timestamp": (_TIMESTAMP, lambda milliseconds: _moment(milliseconds * 1000)),
}
