"""Decoded records as Arrow: which of them count, what they are like, and the last image of each key."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apply_spark.fold import is_simple, latest
from apply_spark.intervals import Interval
from apply_spark.records import contents, each_once, records, since, within
from schemas.identifiers import Epoch, LogId
from schemas.lsn import Lsn, Position
from tests.support.builders import INT8, a_column, a_table

FLOAT8 = 701
TABLE = a_table(a_column("note"), a_column("id", INT8, key=True), a_column("sub id", key=True))
IMAGE = pa.struct([("note", pa.string()), ("id", pa.int64()), ("sub_x20_id", pa.string())])
SOURCE = pa.struct([("commit_lsn", pa.int64()), ("ordinal", pa.int64()), ("epoch", pa.int64()), ("ts_us", pa.int64())])


class Change(NamedTuple):
    lsn: int
    ordinal: int = 0
    op: str = "c"
    id: int = 1
    note: str | None = None
    epoch: int = 7
    unchanged: tuple[str, ...] = ()
    moved: bool = False


def decoded(*changes: Change) -> pa.ChunkedArray:
    """As the decoder gives them. In two chunks, as from two tasks."""
    images = [("before", IMAGE), ("after", IMAGE)]
    shape = pa.struct([*images, ("source", SOURCE), ("op", pa.string()), ("unchanged", pa.list_(pa.string()))])
    structs = [_struct(change) for change in changes]
    middle = len(structs) // 2
    return pa.chunked_array([pa.array(structs[:middle], shape), pa.array(structs[middle:], shape)])


def _struct(change: Change) -> dict[str, Any]:
    key = {"id": change.id, "sub_x20_id": "s"}
    gone = change.op == "d"
    return {
        "before": {"note": None} | key if gone or change.moved else None,
        "after": None if gone or change.op == "t" else {"note": change.note} | key,
        "source": {"commit_lsn": change.lsn, "ordinal": change.ordinal, "epoch": change.epoch, "ts_us": 5},
        "op": change.op,
        "unchanged": list(change.unchanged),
    }


def an_interval(start: int, lsn: int, epoch: int = 7) -> Interval:
    return Interval(LogId("log"), Epoch(epoch), Lsn(start), Lsn(lsn), 1, 1, {}, {}, (), 1, opens=False)


def test_records_become_rows_with_their_position() -> None:
    rows = records(decoded(Change(1, note="a"), Change(2, op="d")))

    assert rows["commit_lsn"].to_pylist() == [1, 2]
    assert [after and after["note"] for after in rows["after"].to_pylist()] == ["a", None]
    assert rows["op"].to_pylist() == ["c", "d"]


@pytest.mark.parametrize("found", [decoded(), pa.chunked_array([], decoded().type)], ids=["empty", "no chunk"])
def test_a_part_without_records_is_an_empty_table(found: pa.ChunkedArray) -> None:
    rows = within(records(found), an_interval(0, 100))

    assert rows.num_rows == 0
    assert contents(rows).rows == 0
    assert latest(rows, TABLE, contents(rows)).num_rows == 0


def test_a_window_has_its_beginning_and_not_its_end_and_one_epoch() -> None:
    rows = records(decoded(Change(99), Change(100), Change(150, epoch=6), Change(199), Change(200)))

    assert within(rows, an_interval(100, 200))["commit_lsn"].to_pylist() == [100, 199]
    assert since(rows, Lsn(199))["commit_lsn"].to_pylist() == [199, 200]


def test_every_position_is_there_once() -> None:
    rows = records(decoded(Change(1, 0), Change(1, 1), Change(1, 0), Change(2, 0), Change(2, 0)))

    once = each_once(rows)

    assert sorted(zip(once["commit_lsn"].to_pylist(), once["ordinal"].to_pylist(), strict=True)) == [
        (1, 0),
        (1, 1),
        (2, 0),
    ]


def test_contents_say_what_the_records_are_like() -> None:
    found = contents(
        records(
            decoded(
                Change(1),
                Change(1, 1, "u", unchanged=("note",)),
                Change(1, 2, "d"),
                Change(1, 3, moved=True),
                Change(2, 9, "t"),
                Change(3, 0, "t"),
            )
        )
    )

    assert (found.rows, found.partial, found.takes_away, found.moves) == (6, 1, 2, 1)
    assert found.truncated_at == Position(Lsn(3), 0)


@pytest.mark.parametrize(
    ("key_type", "arrow", "simple"),
    [(INT8, pa.int64(), True), (25, pa.string(), True), (FLOAT8, pa.float64(), False)],
)
def test_a_key_whose_equal_values_may_differ_in_bytes_is_not_simple(
    key_type: int,
    arrow: pa.DataType,
    simple: bool,  # noqa: FBT001 -- a parameter of the test
) -> None:
    table = a_table(a_column("id", key_type, key=True))
    rows = pa.table({"after": pa.array([], pa.struct([("id", arrow)]))})
    whole = contents(records(decoded()))

    assert is_simple(rows, table, whole) is simple


def test_what_was_sent_in_part_and_what_has_no_key_is_not_simple() -> None:
    partial = records(decoded(Change(1, op="u", unchanged=("note",))))

    assert not is_simple(partial, TABLE, contents(partial))
    assert not is_simple(partial, a_table(a_column("note")), contents(records(decoded(Change(1)))))


@given(st.data())
def test_the_last_image_of_each_key_is_left_in_whatever_order_they_come(data: st.DataObject) -> None:
    ops = data.draw(st.lists(st.tuples(st.sampled_from("cuudt"), st.integers(0, 4)), max_size=30))
    changes = [Change(1 + n // 3, n % 3, op, key, f"{n}") for n, (op, key) in enumerate(ops)]
    model: dict[int, str | None] = {}
    for change in changes:
        if change.op == "t":
            model.clear()
        else:
            model[change.id] = None if change.op == "d" else change.note
    rows = records(decoded(*data.draw(st.permutations(changes))))

    folded = latest(rows, TABLE, contents(rows)).to_pylist()

    assert {event["key"]["id"]: event["row"] and event["row"]["note"] for event in folded} == model
    assert len(folded) == len(model)
    assert all(event["deleted"] == (event["row"] is None) for event in folded)
    assert all(event["key"]["sub_x20_id"] == "s" for event in folded)
