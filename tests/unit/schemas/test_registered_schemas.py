"""What stands in a registry reads the same bytes as what stands on the schema topic."""

from __future__ import annotations

from fastavro.schema import to_parsing_canonical_form

from schemas.envelope import envelope_schema, key_schema
from schemas.identifiers import SchemaId, pipeline_name
from schemas.pg_types.registry import TYPES
from schemas.registered import CONNECT_NAME, registered
from tests.support.builders import a_column, a_table

SHOP = pipeline_name("shop")
EVERY_TYPE = a_table(*(a_column(f"c{oid}", oid, key=oid == 20) for oid in TYPES))


def test_a_registered_schema_of_every_type_reads_the_same_bytes() -> None:
    for plain in (envelope_schema(SHOP, EVERY_TYPE), key_schema(SHOP, EVERY_TYPE)):
        assert to_parsing_canonical_form(registered(plain, SchemaId(7))) == to_parsing_canonical_form(plain)


def test_times_and_uuids_have_the_names_that_debezium_gives_them_in_arrays_too() -> None:
    columns = {"time": 1083, "timestamp": 1114, "timestamptz": 1184, "uuid": 2950, "times": 1183, "date": 1082}
    table = a_table(*(a_column(name, oid) for name, oid in columns.items()))

    schema = registered(envelope_schema(SHOP, table), SchemaId(7))

    fields = {field["name"]: field["type"][1] for field in schema["fields"][0]["type"][1]["fields"]}
    assert fields["time"][CONNECT_NAME] == "io.debezium.time.MicroTime"
    assert fields["timestamp"][CONNECT_NAME] == "io.debezium.time.MicroTimestamp"
    assert fields["timestamptz"][CONNECT_NAME] == "io.debezium.time.MicroTimestamp"
    assert fields["uuid"][CONNECT_NAME] == "io.debezium.data.Uuid"
    assert fields["times"]["items"][1][CONNECT_NAME] == "io.debezium.time.MicroTime"
    assert CONNECT_NAME not in fields["date"], "Connect knows it"


def test_shapes_that_are_equal_in_avro_are_not_in_a_registry() -> None:
    plain = envelope_schema(SHOP, EVERY_TYPE)

    assert registered(plain, SchemaId(7)) != registered(plain, SchemaId(8))
