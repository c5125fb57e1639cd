from __future__ import annotations

import io
import re
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.envelope import avro_name, envelope_schema, key_schema, reader_schema
from schemas.identifiers import TableName, pipeline_name
from schemas.pg_types.registry import TYPES
from schemas.table import ReplicaIdentity, TableSchema
from tests.support.builders import a_column, a_table

SHOP = pipeline_name("shop")
# Names made of what an escape is made of collide where any do.
TRICKY = st.text(alphabet="_x1é", min_size=1, max_size=8)
SOURCE = {
    "version": "0.1.0",
    "connector": "postgresql",
    "name": "shop",
    "ts_ms": 1,
    "ts_us": 1001,
    "snapshot": "false",
    "db": "shop",
    "schema": "public",
    "table": "orders",
    "commit_lsn": 2**63 - 1,
    "ordinal": 7,
    "epoch": 3,
}


TEXTS = {
    "bool": "t",
    "int2": "-32768",
    "int4": "-2147483648",
    "int8": "-9223372036854775808",
    "oid": "4294967295",
    "float4": "-Infinity",
    "float8": "1e-307",
    "numeric": "NaN",
    "uuid": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "bytea": "\\x00ff",
    "date": "5874897-12-31",
    "time": "24:00:00",
    "timestamp": "infinity",
    "timestamptz": "4714-11-24 00:00:00+00 BC",
}


def _text_of(name: str) -> str:
    """A value at the edge of a type, as the server prints it; an array has it twice, around a NULL."""
    element = name.removesuffix("[]")
    text = TEXTS.get(element, "text of any kind, 24:00:00+15:59, {}")
    quoted = text.replace("\\", "\\\\")
    between = next(known.delimiter for known in TYPES.values() if known.name == element)
    return text if element == name else f'{{"{quoted}"{between}NULL{between}"{quoted}"}}'


def _read_back(name: str) -> str:
    return re.sub(r"_x([0-9a-f]+)_", lambda found: chr(int(found[1], 16)), name)


def _without_logical_types(schema: Any) -> Any:  # noqa: ANN401 -- Avro schemas are JSON
    """The same bytes for fastavro, which, unlike Java, lets the writer's logical types decide what a reader gets."""
    match schema:
        case dict():
            return {key: _without_logical_types(value) for key, value in schema.items() if key != "logicalType"}
        case list():
            return [_without_logical_types(value) for value in schema]
        case _:
            return schema


def _written_and_read(table: TableSchema, value: dict[str, Any]) -> dict[str, Any]:
    writer = envelope_schema(SHOP, table)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(writer), value, strict_allow_default=True)
    out.seek(0)
    read = fastavro.schemaless_reader(out, _without_logical_types(writer), reader_schema(writer))
    assert isinstance(read, dict)
    return read


@given(st.text(min_size=1) | TRICKY)
def test_an_avro_name_is_legal_and_can_be_read_back_so_two_names_never_become_one(name: str) -> None:
    escaped = avro_name(name)

    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", escaped)
    assert _read_back(escaped) == name


@given(TRICKY, TRICKY)
def test_two_columns_never_share_an_avro_name(one: str, other: str) -> None:
    assert (avro_name(one) == avro_name(other)) == (one == other)


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("order_items", "order_items"),
        ("tax_x", "tax_x"),
        ("Order Items", "Order_x20_Items"),
        ("1st", "_x31_st"),
        ("a_x20_b", "a_x5f_x20_b"),
        ("_x1é", "_x5f_x1_xe9_"),
        ("\x01xe9_", "_x1_xe9_"),
    ],
)
def test_only_what_avro_forbids_and_what_looks_like_an_escape_is_escaped(name: str, escaped: str) -> None:
    assert avro_name(name) == escaped


def test_a_record_is_read_with_its_rows_its_position_its_time_and_what_is_unchanged() -> None:
    change = {
        "before": None,
        "after": {"id": 1, "note": None},
        "source": SOURCE,
        "op": "u",
        "ts_ms": 1,
        "unchanged": ["note"],
    }

    read = _written_and_read(a_table(), change)

    assert read == {
        "before": None,
        "after": {"id": 1, "note": None},
        "source": {"commit_lsn": 2**63 - 1, "ordinal": 7, "epoch": 3, "ts_us": 1001},
        "op": "u",
        "unchanged": ["note"],
    }


def test_a_row_of_every_known_type_is_read_as_it_was_written() -> None:
    columns = [a_column(known.name, known.oid) for known in TYPES.values()]
    full = {avro_name(known.name): known.parse(_text_of(known.name)) for known in TYPES.values()}
    empty = dict.fromkeys(full, None)

    read = _written_and_read(a_table(*columns), {"before": empty, "after": full, "source": SOURCE, "op": "u"})

    assert read["before"] == empty
    assert read["after"] == full
    assert read["after"]["timestamp"] == 2**63 - 1


def test_the_reader_sees_plain_types_only() -> None:
    columns = [a_column(f"c{oid}", oid) for oid in TYPES]
    writer = envelope_schema(SHOP, a_table(*columns))

    reader = reader_schema(writer)

    assert "logicalType" in str(writer)
    assert "logicalType" not in str(reader)


def test_names_that_avro_forbids_are_escaped_in_columns_and_in_the_namespace() -> None:
    table = a_table(a_column("Unit Price"), name=TableName("my-app", "Order Items"))

    schema = envelope_schema(SHOP, table)

    assert schema["namespace"] == "shop.my_x2d_app.Order_x20_Items"
    assert [field["name"] for field in schema["fields"][0]["type"][1]["fields"]] == ["Unit_x20_Price"]


def test_the_key_holds_the_key_columns_only() -> None:
    schema = key_schema(SHOP, a_table())

    assert [(field["name"], field["type"]) for field in schema["fields"]] == [("id", ["null", "long"])]
    assert (schema["namespace"], schema["name"]) == ("shop.public.orders", "Key")


@given(
    st.lists(st.builds(a_column, st.text(), st.integers(0, 2**32 - 1), nullable=st.booleans(), key=st.booleans())),
    st.sampled_from(ReplicaIdentity),
)
def test_a_table_schema_survives_json(columns: list[Any], identity: ReplicaIdentity) -> None:
    table = a_table(*columns, identity=identity)

    assert TableSchema.from_json(table.to_json()) == table


def test_only_not_null_may_differ_between_tables_of_the_same_shape() -> None:
    table = a_table(a_column("id", key=True))

    assert table.same_shape(a_table(a_column("id", key=True, nullable=False)))
    assert not table.same_shape(a_table(a_column("id", key=False)))
    assert not table.same_shape(a_table(a_column("id", key=True), identity=ReplicaIdentity.FULL))
    assert not table.same_shape(a_table(a_column("id", key=True), name=TableName("public", "renamed")))
