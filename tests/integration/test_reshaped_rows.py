"""Spark and Arrow bring rows of older shapes to the same last one."""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from apply_spark.errors import TableFailed
from apply_spark.reshape import Shapes
from schemas.lsn import Lsn, Position
from schemas.table import TableSchema
from tests.contract.destination_types import ARRAYS, SAMPLES
from tests.support.builders import INT8, a_column, a_table
from tests.unit.apply_spark.test_reshape import FIRST, SECOND, SHAPES, THIRD, records

NUMBERED = ["commit_lsn", "ordinal"]


def in_both(spark: SparkSession, shapes: Shapes, parts: list[tuple[pa.Table, TableSchema]]) -> None:
    in_arrow = pa.concat_tables([shapes.reshape(rows, written) for rows, written in parts])
    frames = [
        frame for rows, written in parts for frame in shapes.reshape_in_spark(spark.createDataFrame(rows), written)
    ]
    in_spark = reduce(DataFrame.unionByName, frames)

    found = in_spark.orderBy(*NUMBERED).toArrow().to_pylist()
    assert repr(found) == repr(in_arrow.sort_by([(name, "ascending") for name in NUMBERED]).to_pylist())


def test_rows_of_every_shape_have_the_last_one(spark: SparkSession) -> None:
    first = records(
        (100, 0, None, {"id": 1, "note": "x", "go_x20_ne": "y"}, ["note", "go ne"]),
        (200, 1, {"id": 2, "note": None, "go_x20_ne": None}, None, []),
    )
    second = records((200, 2, None, {"id": 3, "remark": "z", "more": 8}, ["more", "remark"]))
    third = records((300, 0, None, {"id": 4, "more": 9, "note": "kept"}, ["note"]))

    in_both(spark, SHAPES, [(first, FIRST), (second, SECOND), (third, THIRD)])


def test_what_rows_miss_is_the_same_in_every_type(spark: SparkSession) -> None:
    identity = a_column("id", INT8, key=True, number=1)
    added = [
        a_column(f"c{number}", sample.type_oid, number=number + 2, missing=sample.text)
        for number, sample in enumerate([*SAMPLES, *ARRAYS])
    ]
    before, after = a_table(identity), a_table(identity, *added)
    rows = records((100, 0, None, {"id": 1}, []), (300, 0, None, {"id": 2}, []))

    in_both(spark, Shapes((before, after), (Position(Lsn(400), 0),)), [(rows, before)])


def test_a_record_of_a_shape_that_its_position_does_not_have_stops_the_table(spark: SparkSession) -> None:
    late = records((200, 2, None, {"id": 1, "note": "x", "go_x20_ne": "y"}, []))

    with pytest.raises(TableFailed, match="another shape"):
        SHAPES.reshape_in_spark(spark.createDataFrame(late), FIRST)
