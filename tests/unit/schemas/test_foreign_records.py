"""Bytes that somebody else wrote to the small topics: a record of ours, or NotOurRecord. Never another error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import structlog
from hypothesis import example, given
from hypothesis import strategies as st

from schemas import checkpoint, control, feedback
from schemas.checkpoint import Checkpoint, CopyFinished, TableRemoved
from schemas.control import Control, Pause
from schemas.feedback import Feedback, TableReport
from schemas.identifiers import DestinationName, Epoch, LogId, SchemaId, TableName
from schemas.lsn import Lsn
from schemas.phases import Ready
from schemas.wire import NotOurRecord, header, schema_id_of
from stores.kafka_log import Record
from stores.small_topics import checkpoints, feedbacks

ORDERS = TableName("public", "orders")
MARKERS = (CopyFinished(ORDERS, Lsn(1), 2, 3, (4,), Lsn(5)), TableRemoved(ORDERS))
CHECKPOINT = Checkpoint(LogId("log"), Epoch(1), False, Lsn(1), Lsn(2), 3, 4, (), {"a": (1,)}, 5, MARKERS).encode()
FEEDBACK = Feedback(
    DestinationName("lake"), LogId("log"), Lsn(1), 2, 3, (TableReport(ORDERS, Ready(), Lsn(1), Lsn(2), 3),)
).encode()
COMMAND = Control("7f", Pause(ORDERS)).encode()
READERS: list[tuple[bytes, Callable[[bytes], object]]] = [
    (CHECKPOINT, Checkpoint.decode),
    (FEEDBACK, Feedback.decode),
    (COMMAND, Control.decode),
]
FOREIGN = [None, b"", b"\0\0\0", b'{"op": "c"}', b"\1" + CHECKPOINT[1:]]
"""What has no header: of no version of penstock."""


def read(decode: Callable[[bytes], object], record: bytes) -> NotOurRecord | None:
    try:
        decode(record)
    except NotOurRecord as error:
        return error
    return None


@given(st.sampled_from(READERS), st.binary(max_size=80))
@example(READERS[0], b"\xff" * 40)
@example(READERS[1], b"\x80" * 9 + b"\x01")
def test_any_body_behind_the_right_header_is_read_or_refused(
    reader: tuple[bytes, Callable[[bytes], object]], body: bytes
) -> None:
    whole, decode = reader

    read(decode, header(schema_id_of(whole)) + body)


@given(st.data())
def test_a_record_with_other_bytes_in_it_is_read_or_refused(data: st.DataObject) -> None:
    whole, decode = data.draw(st.sampled_from(READERS))
    start = data.draw(st.integers(5, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + 4)))

    read(decode, whole[:start] + data.draw(st.binary(max_size=4)) + whole[end:])


@pytest.mark.parametrize(("whole", "decode"), READERS)
def test_a_record_that_is_cut_or_too_long_is_refused(whole: bytes, decode: Callable[[bytes], object]) -> None:
    assert all(read(decode, whole[:length]) for length in range(len(whole)))
    assert read(decode, whole + b"\0")
    assert read(decode, whole) is None


def fields(table: list[str], phase: str, lsn: int = 1) -> dict[str, Any]:
    report = {"table": table, "phase": phase, "lsn": lsn, "generation": 1, "rows_copied": 0}
    return {"destination": "lake", "log_id": "log", "lsn": lsn, "commit_ts": 0, "applied_at": 0, "tables": [report]}


@pytest.mark.parametrize(
    "record",
    [
        feedback._CODEC.encode(fields(["public", "orders"], "no json: s3cr3t")),
        feedback._CODEC.encode(fields(["public", "orders"], '{"phase": "Nonsense"}')),
        feedback._CODEC.encode(fields(["public", "orders"], "[" * 50_000)),
        feedback._CODEC.encode(fields(["public"], '{"phase": "Ready"}')),
        feedback._CODEC.encode(fields(["public", "orders"], '{"phase": "Ready"}', lsn=-1)),
    ],
    ids=["no JSON", "no phase", "deep JSON", "half a name", "below zero"],
)
def test_feedback_that_is_avro_and_makes_no_sense_is_refused_and_not_repeated(record: bytes) -> None:
    error = read(Feedback.decode, record)

    assert error is not None
    assert "s3cr3t" not in f"{error.reason} {error.__cause__}"


def test_a_command_that_is_avro_and_makes_no_sense_is_refused() -> None:
    command = {"id": "1", "command": "skip", "table": ["public", "orders"], "destination": None}

    assert read(Control.decode, control._TABLE_COMMAND.encode({**command, "position": "somewhere"}))
    assert read(Control.decode, control._TABLE_COMMAND.encode({**command, "position": None}))
    assert read(Control.decode, control._RESYNC.encode({"id": "1", "command": "resync", "table": ["a", "b", "c"]}))


def test_a_checkpoint_with_an_lsn_that_none_is_is_refused() -> None:
    number: dict[str, Any] = dict.fromkeys(("epoch", "from", "lsn", "commit_ts", "emitted_at", "control"), -1)
    record = checkpoint._CODEC.encode(
        {"log_id": "log", "opens": True, "moved": [], "ends": {}, "markers": [], **number}
    )

    assert read(Checkpoint.decode, record)


def test_a_record_that_is_not_ours_is_named_by_topic_and_offset() -> None:
    with pytest.raises(NotOurRecord) as caught:
        Record(7, None, b"not Avro", 0, "shop.control").read(Control.decode)

    assert "on topic shop.control at offset 7" in caught.value.reason
    assert "not Avro" not in caught.value.reason


def records(*values: bytes | None) -> list[Record]:
    return [Record(offset, None, value, 0, "shop.topic") for offset, value in enumerate(values)]


def test_what_is_of_no_penstock_is_passed_over_among_checkpoints_and_told() -> None:
    with structlog.testing.capture_logs() as logged:
        found = list(checkpoints(records(CHECKPOINT, *FOREIGN, CHECKPOINT)))

    assert [offset for offset, _ in found] == [0, len(FOREIGN) + 1]
    assert [(entry["topic"], entry["offset"]) for entry in logged] == [("shop.topic", 1 + at) for at in range(5)]


@pytest.mark.parametrize("record", [FEEDBACK, CHECKPOINT[:-1], header(SchemaId(1)) + b"x"])
def test_what_may_be_a_checkpoint_of_another_version_ends_the_reader(record: bytes) -> None:
    with pytest.raises(NotOurRecord, match=r"on topic shop\.topic at offset 1"):
        list(checkpoints(records(CHECKPOINT, record)))


def test_whatever_is_no_feedback_is_passed_over_and_told() -> None:
    with structlog.testing.capture_logs() as logged:
        found = list(feedbacks(records(*FOREIGN, CHECKPOINT, FEEDBACK)))

    assert [each.destination for each in found] == ["lake"]
    assert len(logged) == len(FOREIGN), "a record without a value is no mistake there"
