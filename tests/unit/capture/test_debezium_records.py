from __future__ import annotations

import io
import struct
from typing import Any

import fastavro
import pytest

from capture.adopt.debezium import DebeziumSchemas, NotAdopted, Reading, followed, placeholders
from capture.pgoutput.messages import UNCHANGED
from schemas.evolution import ColumnAdded, ColumnDropped, changes
from schemas.identifiers import TableName
from schemas.pg_types.dates import TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY, parse_timestamp
from schemas.table import Column

TABLE = TableName("public", "t")
PLACEHOLDER = "__debezium_unavailable_value"


def envelope(**columns: Any) -> dict[str, Any]:  # noqa: ANN401 -- Avro types
    fields = [{"name": name, "type": avro} for name, avro in columns.items()]
    row = {"type": "record", "name": "Value", "fields": fields}
    images = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Value"]}]
    return {"type": "record", "name": "Envelope", "fields": images}


def known(schema: dict[str, Any]) -> DebeziumSchemas:
    """A registry that has one schema, under the id 7."""
    return DebeziumSchemas({7: schema}.__getitem__)


def record(schema: dict[str, Any], after: dict[str, Any]) -> bytes:
    out = io.BytesIO(struct.pack(">bI", 0, 7))
    out.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {"before": None, "after": after})
    return out.getvalue()


def read(avro: Any, value: object) -> tuple[str, Any]:  # noqa: ANN401
    """The Postgres type and the value of a column that Debezium wrote so."""
    schema = envelope(c=["null", avro])
    schemas, written = known(schema), record(schema, {"c": value})
    reading = schemas.reading(written, [])
    (found,) = reading.row(schemas.decoded(written)["after"], placeholders(PLACEHOLDER))
    return reading.columns[0].type_name, found


def named(avro: str, name: str, **parameters: str) -> dict[str, Any]:
    return {"type": avro, "connect.name": name, "connect.parameters": parameters}


DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "namespace": "io.debezium.data",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    "connect.name": "io.debezium.data.VariableScaleDecimal",
}


@pytest.mark.parametrize(
    ("avro", "value", "expected"),
    [
        ("int", 5, ("int4", 5)),
        ({"type": "int", "connect.type": "int16"}, 5, ("int2", 5)),
        ("string", "naïve", ("text", "naïve")),
        ("bytes", b"\0\xff", ("bytea", b"\0\xff")),
        (named("bytes", DECIMAL, scale="2"), (-1230).to_bytes(2, "big", signed=True), ("numeric", "-12.30")),
        (VARIABLE, {"scale": 3, "value": b"\x05"}, ("numeric", "0.005")),
        (named("long", "io.debezium.time.MicroTimestamp"), 1, ("timestamp", 1)),
        (named("long", "io.debezium.time.MicroTimestamp"), 9223372036825200000, ("timestamp", TIMESTAMP_INFINITY)),
        (named("long", "io.debezium.time.Timestamp"), -9223372036832400, ("timestamp", TIMESTAMP_MINUS_INFINITY)),
        (
            named("long", "org.apache.kafka.connect.data.Timestamp"),
            9223372036825200,
            ("timestamp", TIMESTAMP_INFINITY),
        ),
        (named("int", "io.debezium.time.Time"), 7, ("time", 7000)),
        (
            named("string", "io.debezium.time.ZonedTimestamp"),
            "-0043-03-15T01:02:03.000004Z",
            ("timestamptz", parse_timestamp("0044-03-15 01:02:03.000004+00 BC")),
        ),
        (named("string", "io.debezium.time.ZonedTimestamp"), "infinity", ("timestamptz", TIMESTAMP_INFINITY)),
        (named("string", "io.debezium.data.Ltree"), "a.b", ("text", "a.b")),
        ({"type": "array", "items": ["null", "long"]}, [1, None], ("int8[]", [1, None])),
        ("string", PLACEHOLDER, ("text", UNCHANGED)),
        ("bytes", PLACEHOLDER.encode(), ("bytea", UNCHANGED)),
        ({"type": "array", "items": ["null", "string"]}, [PLACEHOLDER], ("text[]", UNCHANGED)),
        ({"type": "array", "items": ["null", "int"]}, list(PLACEHOLDER.encode()), ("int4[]", UNCHANGED)),
        ("int", None, ("int4", None)),
    ],
)
def test_a_value_arrives_as_its_type_holds_it(avro: object, value: object, expected: tuple[str, object]) -> None:
    assert read(avro, value) == expected


@pytest.mark.parametrize(
    "avro",
    [
        named("double", "io.debezium.data.geometry.Point"),
        named("long", "io.debezium.time.NanoTimestamp"),
        {"type": "map", "values": "string"},
    ],
)
def test_a_type_that_nobody_knows_is_refused_with_its_column(avro: object) -> None:
    with pytest.raises(NotAdopted, match="Column c has the type"):
        read(avro, None)


def test_a_record_in_another_format_is_refused_with_the_settings_of_the_converter() -> None:
    with pytest.raises(NotAdopted) as refused:
        known(envelope()).decoded(b'{"op": "c"}')

    assert "as-confluent" in refused.value.solution


def test_a_key_alone_makes_a_row_of_which_the_rest_is_not_known() -> None:
    reading = Reading((Column("id", 23, "int4", key=True), Column("n", 25, "text")), (int, str))

    assert reading.key_row({"id": 5}) == [5, None]


def test_columns_keep_their_numbers_and_new_ones_are_behind() -> None:
    id_, name, later = (Column(name, 25, "text", key=name == "id") for name in ("id", "name", "later"))
    first = followed(None, TABLE, (id_, name))

    second = followed(first, TABLE, (id_, later))
    third = followed(second, TABLE, (id_, later, name))

    assert [column.number for column in third.columns] == [1, 3, 4]
    assert [type(change) for change in changes(first, second) or []] == [ColumnDropped, ColumnAdded]
    assert [type(change) for change in changes(second, third) or []] == [ColumnAdded]
    assert changes(first, followed(first, TABLE, (id_, Column("name", 23, "int4")))) is None
