"""The compiled decoder against Spark's `from_avro`: the same types and the same values."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.avro.functions import from_avro

from apply_spark.arrow_decode import is_installed
from apply_spark.avro_plan import plan
from apply_spark.decode import decoded, decoded_copy
from apply_spark.records import records
from schemas.envelope import copy_reader_schema, reader_schema
from schemas.identifiers import SchemaId
from schemas.wire import header
from stores.schema_topic import RegisteredSchema
from tests.support.avro_records import encoded, records_of_all_types

if not is_installed():
    pytest.skip("the compiled decoder is not installed", allow_module_level=True)

from apply_spark.avro_decoder import AvroDecoder

ID = SchemaId(7)
TOPIC = "shop.public.orders"


def raw(spark: SparkSession, values: list[bytes]) -> DataFrame:
    return spark.createDataFrame([(TOPIC, bytearray(value)) for value in values], "topic string, value binary")


def here(schema: dict[str, Any], reader: dict[str, Any], values: list[bytes]) -> pa.ChunkedArray:
    return pa.chunked_array([AvroDecoder(header(ID), plan(schema, reader)).decode(pa.array(values, pa.binary()))])


def test_changes_of_every_type_are_the_same(spark: SparkSession) -> None:
    schema, values = records_of_all_types(header(ID))

    in_spark = decoded(raw(spark, values), TOPIC, RegisteredSchema(ID, schema, None)).toArrow()
    compiled = records(here(schema, reader_schema(schema), values))

    assert compiled.schema == in_spark.schema
    assert compiled.to_pylist() == in_spark.to_pylist()


def test_copied_rows_of_every_type_are_the_same(spark: SparkSession) -> None:
    schema, values = records_of_all_types(header(ID))

    in_spark = decoded_copy(raw(spark, values), TOPIC, RegisteredSchema(ID, schema, None)).toArrow()
    compiled = here(schema, copy_reader_schema(schema), values).combine_chunks().field("after")

    assert compiled.type == in_spark.schema.field("row").type
    assert compiled.to_pylist() == in_spark["row"].to_pylist()


def test_a_union_of_several_types_is_the_same(spark: SparkSession) -> None:
    union = ["null", {"type": "array", "items": ["null", "long"]}, "string"]
    schema = {"type": "record", "name": "R", "fields": [{"name": "u", "type": union}]}
    bodies = [encoded(schema, {"u": value}, b"") for value in ([1, None], "text", None, [])]

    frame = raw(spark, bodies).select(from_avro("value", json.dumps(schema)).alias("record"))
    in_spark = frame.select("record.*").toArrow()
    compiled = here(schema, schema, [header(ID) + body for body in bodies]).combine_chunks().field("u")

    assert compiled.type == in_spark.schema.field("u").type
    assert compiled.to_pylist() == in_spark["u"].to_pylist()
