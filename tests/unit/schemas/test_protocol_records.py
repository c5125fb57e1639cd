"""Checkpoint, feedback and control records: what is written is what is read."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.acknowledge import AcknowledgeConfig, Policy
from schemas.checkpoint import (
    Checkpoint,
    CopyFinished,
    CopyStarted,
    Marker,
    Moved,
    SchemaChanged,
    TableErrored,
    TableRemoved,
)
from schemas.control import Command, Control, Pause, Resume, Resync, Rollback, Skip, SwitchPolicy
from schemas.errors import Retry, StateTooNew
from schemas.feedback import Feedback, TableReport
from schemas.identifiers import DestinationName, Epoch, LogId, SchemaId, TableName
from schemas.lsn import Lsn, Position
from schemas.phases import Catchup, DataSync, Errored, FinishedCopy, Init, Phase, Ready, SyncDone, SyncWait
from schemas.table import TableSchema
from schemas.wire import FixedCodec, NewerRecord, NotOurRecord, derived_id, header, schema_id_of

LONGS = st.integers(0, 2**63 - 1)
LSNS = LONGS.map(Lsn)
IDS = st.integers(0, 2**31 - 1).map(SchemaId)
LOGS = st.text().map(LogId)
TABLES = st.builds(TableName, st.text(), st.text())
POSITIONS = st.builds(Position, LSNS, LONGS)
OFFSETS = st.lists(LONGS, max_size=3).map(tuple)
MARKERS: st.SearchStrategy[Marker] = st.one_of(
    st.builds(CopyStarted, TABLES, IDS, LSNS, st.text(), st.text(), LONGS, LONGS),
    st.builds(CopyFinished, TABLES, LSNS, LONGS, LONGS, OFFSETS, LSNS),
    st.builds(SchemaChanged, TABLES, POSITIONS, IDS, st.booleans()),
    st.builds(TableRemoved, TABLES),
    st.builds(TableErrored, TABLES, POSITIONS, st.text(), st.text()),
)
CHECKPOINTS = st.builds(
    Checkpoint,
    log_id=LOGS,
    epoch=LONGS.map(Epoch),
    opens=st.booleans(),
    start=LSNS,
    lsn=LSNS,
    commit_ts=LONGS,
    emitted_at=LONGS,
    moved=st.lists(st.builds(Moved, st.text(), IDS, LONGS, LONGS), max_size=3).map(tuple),
    ends=st.dictionaries(st.text(), OFFSETS, max_size=3),
    control=LONGS,
    markers=st.lists(MARKERS, max_size=4).map(tuple),
)
STORED = st.one_of(
    st.sampled_from([Init(), DataSync(), FinishedCopy(), Ready()]),
    st.builds(SyncDone, LSNS),
)
PHASES: st.SearchStrategy[Phase] = st.one_of(
    STORED,
    st.just(SyncWait()),
    st.builds(Catchup, LSNS),
    st.builds(Errored, st.text(), st.text(), st.sampled_from(Retry), st.integers(0, 99), STORED),
)
POSITIONS = st.builds(Position, LSNS, LONGS)
REPORTS = st.builds(
    TableReport, TABLES, PHASES, LSNS, LSNS, LONGS, st.booleans(), st.lists(POSITIONS, max_size=2).map(tuple)
)
FEEDBACKS = st.builds(
    Feedback,
    destination=st.text().map(DestinationName),
    log_id=LOGS,
    lsn=LSNS,
    commit_ts=LONGS,
    applied_at=LONGS,
    tables=st.lists(REPORTS, max_size=3).map(tuple),
)
BOUNDED = AcknowledgeConfig(policy=Policy.BOUNDED, max_wal=20_000_000_000)
DESTINATIONS = st.none() | st.text().map(DestinationName)
COMMANDS: st.SearchStrategy[Command] = st.one_of(
    st.builds(Resync, TABLES),
    st.builds(Rollback, TABLES, DESTINATIONS),
    st.builds(Pause, TABLES, DESTINATIONS),
    st.builds(Resume, TABLES, DESTINATIONS),
    st.builds(Skip, TABLES, POSITIONS, DESTINATIONS),
    st.sampled_from([SwitchPolicy(None), SwitchPolicy(AcknowledgeConfig(policy=Policy.KAFKA)), SwitchPolicy(BOUNDED)]),
)
CONTROL = Control("7f", Resync(TableName("public", "orders")))


@given(CHECKPOINTS)
def test_a_checkpoint_is_read_as_it_was_written(checkpoint: Checkpoint) -> None:
    assert Checkpoint.decode(checkpoint.encode()) == checkpoint


def test_a_checkpoint_of_nothing_is_read_as_it_was_written() -> None:
    empty = Checkpoint(LogId("log"), Epoch(1), opens=True, start=Lsn(1), lsn=Lsn(1), commit_ts=0, emitted_at=0)

    assert Checkpoint.decode(empty.encode()) == empty


def test_positions_of_a_read_checkpoint_are_lsns_not_numbers() -> None:
    table = TableName("public", "orders")
    markers = (
        CopyFinished(table, Lsn(1), 0, 0, (), Lsn(2)),
        TableErrored(table, Position(Lsn(3), 4), "reason", "solution"),
    )
    written = Checkpoint(
        LogId("log"), Epoch(1), opens=False, start=Lsn(1), lsn=Lsn(2), commit_ts=0, emitted_at=0, markers=markers
    )

    finished, errored = Checkpoint.decode(written.encode()).markers

    assert isinstance(finished, CopyFinished)
    assert isinstance(errored, TableErrored)
    assert {type(lsn) for lsn in (finished.generation, finished.last, errored.position.commit_lsn)} == {Lsn}


@given(FEEDBACKS)
def test_a_feedback_is_read_as_it_was_written(feedback: Feedback) -> None:
    assert Feedback.decode(feedback.encode()) == feedback


@given(st.text(), COMMANDS)
def test_a_command_is_read_as_it_was_written(name: str, command: Command) -> None:
    control = Control(name, command)

    assert Control.decode(control.encode()) == control


def test_a_record_of_another_kind_is_refused() -> None:
    with pytest.raises(NewerRecord, match="no Feedback that this penstock knows"):
        Feedback.decode(CONTROL.encode())


@pytest.mark.parametrize("record", [b"", b"\0\0\0\0", b"\1\0\0\0\0", b'{"id": 1}'])
def test_a_record_without_the_header_is_refused(record: bytes) -> None:
    with pytest.raises(NotOurRecord, match="header"):
        Control.decode(record)


@given(IDS)
def test_the_header_is_a_zero_and_the_schema_id_in_four_bytes(schema: SchemaId) -> None:
    assert header(schema) == b"\0" + struct.pack(">I", schema)
    assert schema_id_of(header(schema) + b"body") == schema


def test_the_id_of_a_schema_is_31_bits_of_its_sha_256_for_ever() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "long"]}]}
    reordered = {"name": "R", "fields": [{"type": ["null", "long"], "name": "a"}], "type": "record"}

    assert derived_id(schema) == derived_id(reordered) == 1_954_877_456
    assert derived_id({**schema, "name": "S"}) != derived_id(schema)


def test_the_ids_of_the_protocol_records_do_not_drift() -> None:
    ids = {
        "checkpoint": schema_id_of(
            Checkpoint(LogId(""), Epoch(0), opens=True, start=Lsn(0), lsn=Lsn(0), commit_ts=0, emitted_at=0).encode()
        ),
        "feedback": schema_id_of(Feedback(DestinationName(""), LogId(""), Lsn(0), 0, 0).encode()),
        "control": schema_id_of(CONTROL.encode()),
        "switch": schema_id_of(Control("", SwitchPolicy(None)).encode()),
        "table command": schema_id_of(Control("", Pause(TableName("", ""))).encode()),
    }

    assert ids == {
        "checkpoint": 176_786_394,
        "feedback": 1_865_480_964,
        "control": 577_908_289,
        "switch": 1_169_152_233,
        "table command": 1_595_503_402,
    }


def test_a_policy_of_a_later_version_is_refused_as_not_ours() -> None:
    nobodys = AcknowledgeConfig.model_construct(policy=Policy.BOUNDED, max_wal=None)

    with pytest.raises(NotOurRecord, match="policy"):
        Control.decode(Control("7f", SwitchPolicy(nobodys)).encode())


def _record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "a", "type": "long"}, *fields]}


def _with_markers(*fields: dict[str, Any]) -> dict[str, Any]:
    """As a checkpoint has them: a list of records of several kinds."""
    kinds = [_record("Started", *fields), _record("Finished")]
    return _record("Log", {"name": "markers", "type": {"type": "array", "items": kinds}}, *fields)


def test_a_record_of_a_release_before_is_read_with_the_defaults_of_what_it_did_not_have() -> None:
    before, new = _with_markers(), {"name": "later", "type": "string", "default": "none"}
    old = FixedCodec(before).encode({"a": 1, "markers": [("Finished", {"a": 2}), ("Started", {"a": 3})]})

    value = FixedCodec(_with_markers(new), before).decode(old, dict)

    markers = [("Finished", {"a": 2}), ("Started", {"a": 3, "later": "none"})]
    assert value == {"a": 1, "markers": markers, "later": "none"}


def test_a_record_of_a_release_after_is_refused() -> None:
    newer = FixedCodec(_record("Log", {"name": "later", "type": "string", "default": "none"}))

    with pytest.raises(NewerRecord, match="newer penstock") as refused:
        FixedCodec(_record("Log")).decode(newer.encode({"a": 1, "later": "x"}), dict)

    assert "Upgrade this penstock" in refused.value.solution


def test_a_schema_of_a_release_after_is_refused() -> None:
    column = {"name": "a", "type_oid": 20, "type_name": "int8"}
    table = {"id": 1, "schema": "public", "name": "t", "identity": "d", "columns": [column]}

    assert TableSchema.from_json(table).columns[0].name == "a"
    with pytest.raises(StateTooNew, match="tells later"):
        TableSchema.from_json({**table, "columns": [{**column, "later": 1}]})
    with pytest.raises(StateTooNew, match="tells later"):
        TableSchema.from_json({**table, "later": 1})
