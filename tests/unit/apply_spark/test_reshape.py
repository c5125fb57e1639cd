from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from apply_spark.errors import TableFailed
from apply_spark.reshape import Shapes, default
from schemas.lsn import Lsn, Position
from tests.support.builders import INT8, a_column, a_table

INT8_ARRAY, BYTEA, TIMESTAMP, NUMERIC = 1016, 17, 1114, 1700
ID = a_column("id", INT8, nullable=False, key=True, number=1)
NOTE = a_column("note", number=2)
GONE = a_column("go ne", number=3)
FIRST = a_table(ID, NOTE, GONE)
SECOND = a_table(ID, replace(NOTE, name="remark"), a_column("more", INT8, number=4, missing="7"))
THIRD = a_table(ID, a_column("more", INT8, number=4), a_column("note", number=5, missing="new"))
SHAPES = Shapes((FIRST, SECOND, THIRD), (Position(Lsn(200), 2), Position(Lsn(300), 0)))


def records(*rows: tuple[int, int, dict[str, Any] | None, dict[str, Any] | None, list[str]]) -> pa.Table:
    lsns, ordinals, before, after, unchanged = zip(*rows, strict=True)
    count = len(rows)
    return pa.table(
        {
            "commit_lsn": pa.array(lsns, pa.int64()),
            "ordinal": pa.array(ordinals, pa.int64()),
            "epoch": pa.array([1] * count, pa.int64()),
            "ts_us": pa.array([1] * count, pa.int64()),
            "op": pa.array(["u"] * count),
            "before": pa.array(before, pa.struct([(name, kind) for name, kind in _fields(after)])),
            "after": pa.array(after, pa.struct([(name, kind) for name, kind in _fields(after)])),
            "unchanged": pa.array(unchanged, pa.list_(pa.string())),
        }
    )


def _fields(images: tuple[dict[str, Any] | None, ...]) -> list[tuple[str, pa.DataType]]:
    found = next(image for image in images if image is not None)
    return [(name, pa.int64() if isinstance(value, int) else pa.string()) for name, value in found.items()]


def test_without_a_new_shape_rows_stay_as_they_are() -> None:
    rows = records((100, 0, None, {"id": 1}, []))

    assert Shapes((FIRST,), ()).reshape(rows, FIRST) is rows


def test_rows_of_every_shape_have_the_last_one() -> None:
    first = records(
        (100, 0, None, {"id": 1, "note": "x", "go_x20_ne": "y"}, ["note", "go ne"]),
        (200, 1, {"id": 2, "note": None, "go_x20_ne": None}, None, []),
    )
    second = records((200, 2, None, {"id": 3, "remark": "z", "more": 8}, ["more", "remark"]))
    third = records((300, 0, None, {"id": 4, "more": 9, "note": "kept"}, ["note"]))

    rows = pa.concat_tables(
        [SHAPES.reshape(part, shape) for part, shape in ((first, FIRST), (second, SECOND), (third, THIRD))]
    )

    assert rows["after"].to_pylist() == [
        {"id": 1, "more": 7, "note": "new"},
        None,
        {"id": 3, "more": 8, "note": "new"},
        {"id": 4, "more": 9, "note": "kept"},
    ]
    assert rows["before"].to_pylist() == [None, {"id": 2, "more": 7, "note": "new"}, None, None]
    assert rows["unchanged"].to_pylist() == [[], [], ["more"], ["note"]]
    assert rows["ordinal"].to_pylist() == [0, 1, 2, 0]


def test_a_column_that_takes_an_old_name_has_what_the_source_shows_in_rows_before_it() -> None:
    before = a_table(ID, NOTE)
    shapes = Shapes((before, a_table(ID, replace(NOTE, number=5, missing="new"))), (Position(Lsn(200), 0),))
    rows = records((199, 0, None, {"id": 1, "note": "old"}, []), (200, 0, None, {"id": 2, "note": "own"}, []))

    assert shapes.reshape(rows, before)["after"].to_pylist() == [{"id": 1, "note": "new"}, {"id": 2, "note": "own"}]


def test_a_record_of_a_shape_that_its_position_does_not_have_stops_the_table() -> None:
    late = records((200, 2, None, {"id": 1, "note": "x", "go_x20_ne": "y"}, []))

    with pytest.raises(TableFailed, match="another shape"):
        SHAPES.reshape(late, FIRST)


@pytest.mark.parametrize(
    ("type_oid", "missing", "value"),
    [
        (INT8, None, None),
        (INT8, "-1", -1),
        (NUMERIC, "1.50", "1.50"),
        (BYTEA, "\\x00ff", b"\x00\xff"),
        (TIMESTAMP, "1970-01-01 00:00:01", 1_000_000),
        (INT8_ARRAY, "{1,NULL}", {"member0": [1, None], "member1": None}),
        (INT8_ARRAY, "{{1}}", {"member0": None, "member1": "{{1}}"}),
    ],
)
def test_what_rows_miss_is_read_as_a_record_is(type_oid: int, missing: str | None, value: object) -> None:
    assert default(a_column("more", type_oid, number=3, missing=missing)).as_py() == value
