from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import pytest

from capture.catalog_types import CatalogType, CatalogTypes, looked_through
from capture.pgoutput.messages import Relation, RelationColumn
from capture.registrar import Registrar
from capture.schema_versions import SchemaVersions
from capture.tables import StreamTables
from schemas.identifiers import Epoch, PipelineName, TableId
from schemas.pg_types.registry import column_type
from schemas.table import Column, ReplicaIdentity, TableSchema
from stores.memory import MemoryStore
from tests.support.builders import a_table

NUMERIC, NUMERIC_ARRAY, INT4_ARRAY, TWO_DIGITS = 1700, 1231, 1007, (10 << 16 | 2) + 4
MOOD, MOODS, PRICE, PRICES, SALE, MOOD_DOMAIN, MOOD_DOMAINS, NUMBERS, LISTS, SHAPE, SHAPES = range(20_001, 20_012)
TYPES = {
    each.oid: each
    for each in (
        CatalogType(MOOD, "public.mood", 0, -1, 0, None),
        CatalogType(MOODS, "public.mood[]", 0, -1, MOOD, ","),
        CatalogType(PRICE, "public.price", NUMERIC, TWO_DIGITS, 0, None),
        CatalogType(PRICES, "public.price[]", 0, -1, PRICE, ","),
        CatalogType(SALE, "public.sale", PRICE, -1, 0, None),
        CatalogType(MOOD_DOMAIN, "public.good_mood", MOOD, -1, 0, None),
        CatalogType(MOOD_DOMAINS, "public.good_mood[]", 0, -1, MOOD_DOMAIN, ","),
        CatalogType(NUMBERS, "public.numbers", INT4_ARRAY, -1, 0, None),
        CatalogType(LISTS, "public.numbers[]", 0, -1, NUMBERS, ","),
        CatalogType(SHAPE, "public.shape", 0, -1, 0, None),
        CatalogType(SHAPES, "public.shape[]", 0, -1, SHAPE, ":"),
    )
}


def a_column_of(oid: int, modifier: int = -1) -> Column:
    return Column("c", oid, TYPES[oid].name if oid in TYPES else "other", modifier)


@pytest.mark.parametrize(
    ("oid", "found"),
    [
        (NUMERIC, (NUMERIC, -1, None)),
        (PRICE, (NUMERIC, TWO_DIGITS, None)),
        (SALE, (NUMERIC, TWO_DIGITS, None)),
        (PRICES, (NUMERIC_ARRAY, TWO_DIGITS, None)),
        (MOOD_DOMAIN, (MOOD, -1, None)),
        (NUMBERS, (INT4_ARRAY, -1, None)),
        (MOOD, (MOOD, -1, None)),
        (MOODS, (MOODS, -1, ",")),
        (MOOD_DOMAINS, (MOOD_DOMAINS, -1, ",")),
        (LISTS, (LISTS, -1, ",")),
        (SHAPES, (SHAPES, -1, ":")),
        (99_999, (99_999, -1, None)),
    ],
)
def test_a_column_has_the_type_behind_its_domains(oid: int, found: tuple[int, int, str | None]) -> None:
    column = looked_through(a_column_of(oid), TYPES)

    assert (column.type_oid, column.modifier, column.delimiter) == found


def test_the_name_of_a_type_that_is_not_in_the_table_is_kept() -> None:
    assert looked_through(a_column_of(MOODS), TYPES).type_name == "public.mood[]"
    assert looked_through(a_column_of(MOOD_DOMAIN), TYPES).type_name == "public.mood"
    assert looked_through(a_column_of(PRICES), TYPES).type_name == "numeric[]"


def test_a_modifier_of_the_column_itself_is_kept() -> None:
    assert looked_through(a_column_of(SHAPES, 7), TYPES).modifier == 7


def test_an_array_of_a_type_that_users_made_is_a_list_of_texts() -> None:
    known = column_type(looked_through(a_column_of(LISTS), TYPES))

    assert known.parse('{"{1,2}",NULL,"{}"}') == ["{1,2}", None, "{}"]
    assert known.branches == ["null", {"type": "array", "items": ["null", "string"]}, "string"]


def test_a_relation_message_is_looked_through_as_the_catalog_is() -> None:
    columns = tuple(a_column_of(oid) for oid in (PRICE, PRICES, MOODS, NUMBERS, NUMERIC))
    of_catalog = tuple(looked_through(column, TYPES) for column in columns)
    sent = tuple(RelationColumn(each.name, each.type_oid, each.modifier, key=False) for each in columns)
    relation = Relation(TableId(1), "public", "orders", ReplicaIdentity.DEFAULT, sent)
    asked: list[list[int]] = []

    def types(oids: Iterable[int]) -> CatalogTypes:
        asked.append(list(oids))
        return TYPES

    versions = SchemaVersions(MemoryStore())
    tables = StreamTables(
        PipelineName("p"), "d", Epoch(1), cast("Registrar", None), lambda _name, _xid: None, types, versions
    )
    streamed = tables._schema(relation, None)

    assert asked == [[PRICE, PRICES, MOODS, NUMBERS, NUMERIC]]
    assert streamed.same_shape(TableSchema(TableId(1), streamed.name, of_catalog))
    assert [each.type_name for each in streamed.columns][:3] == ["numeric", "numeric[]", "public.mood[]"]


def test_a_schema_keeps_its_delimiters_and_one_stored_before_there_were_any_is_read() -> None:
    schema = a_table(looked_through(a_column_of(SHAPES), TYPES))
    before = schema.to_json()
    for column in before["columns"]:
        del column["delimiter"]

    assert TableSchema.from_json(schema.to_json()) == schema
    assert TableSchema.from_json(before).columns[0].delimiter is None
    assert not TableSchema.from_json(before).same_shape(schema), "its records have another type"
