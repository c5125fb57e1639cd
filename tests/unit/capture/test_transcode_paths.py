"""Which path is taken, and what every path promises, with or without a compiler."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator

import fastavro
import pytest
from structlog.testing import capture_logs

from capture.pgoutput.messages import UNCHANGED, Insert, OldKind, TupleData, Update
from capture.transcode import choose
from capture.transcode.choose import KERNEL, REFERENCE_PATH, Path, kernel_path
from capture.transcode.plan import Code, table_plan
from capture.transcode.reference import Origin, relation_of
from capture.transcode.updates import InPlace, Move, settle
from schemas.envelope import envelope_schema, key_schema
from schemas.identifiers import Epoch, PipelineName, SchemaId, TableId
from schemas.pg_types.registry import TYPES
from schemas.wire import HEADER_BYTES, schema_id_of
from tests.support.builders import a_column, a_table, copy_line, encode_message

SHOP = PipelineName("shop")
ORDERS = a_table()
AT = Origin(commit_lsn=30, commit_ts=1_600_000_000_123_456, xid=7, lsn=20, ordinal=3)
PATHS = [path for path in (REFERENCE_PATH, kernel_path()) if path is not None]
EVERY_PATH = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.transcoder.__name__)


@pytest.fixture(autouse=True)
def undecided() -> Iterator[None]:
    choose._path.cache_clear()
    yield
    choose._path.cache_clear()


def test_the_reference_path_can_be_asked_for_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KERNEL, "reference")

    with capture_logs() as logs:
        made = [choose.transcoder(SHOP, "db", ORDERS, (SchemaId(1), SchemaId(2)), Epoch(1)) for _ in range(2)]

    assert [type(each) for each in made] == [REFERENCE_PATH.transcoder] * 2
    assert [line["event"] for line in logs] == ["transcoding on the reference path"]


def test_without_the_extension_the_reference_path_is_taken_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KERNEL, raising=False)
    monkeypatch.delattr("capture.transcode.kernel", raising=False)
    monkeypatch.setitem(sys.modules, "capture.transcode.kernel", None)

    with capture_logs() as logs:
        assert choose.chosen_path() is REFERENCE_PATH

    assert [line["log_level"] for line in logs] == ["warning"]


@pytest.mark.skipif(kernel_path() is None, reason="the compiled kernel is not installed")
def test_with_the_extension_the_kernel_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KERNEL, raising=False)

    assert choose.chosen_path() == kernel_path()


@EVERY_PATH
def test_a_record_is_read_back_with_the_schemas_of_its_table(path: Path) -> None:
    before = time.time_ns()
    transcoder = path.transcoder(SHOP, "db", ORDERS, (SchemaId(11), SchemaId(12)), Epoch(77))

    record = transcoder.change(encode_message(Insert(ORDERS.id, (b"42", UNCHANGED))), AT)

    assert record is not None
    key, value = record
    assert key is not None
    assert (schema_id_of(key), schema_id_of(value)) == (12, 11)
    assert _read(key, key_schema(SHOP, ORDERS)) == {"id": 42}
    envelope = _read(value, envelope_schema(SHOP, ORDERS))
    assert (envelope["op"], envelope["before"], envelope["after"]) == ("c", None, {"id": 42, "note": None})
    assert envelope["unchanged"] == ["note"]
    source = envelope["source"]
    assert isinstance(source, dict)
    assert (source["commit_lsn"], source["lsn"], source["ordinal"], source["epoch"]) == (30, 20, 3, 77)
    now = envelope["ts_ns"]
    assert isinstance(now, int)
    assert before <= now <= time.time_ns()
    assert (envelope["ts_us"], envelope["ts_ms"]) == (now // 1000, now // 1_000_000)


def _read(record: bytes, schema: dict[str, object]) -> dict[str, object]:
    value = fastavro.schemaless_reader(io.BytesIO(record[HEADER_BYTES:]), schema, None)
    assert isinstance(value, dict)
    return value


@EVERY_PATH
def test_a_table_without_a_key_has_records_without_one(path: Path) -> None:
    transcoder = path.transcoder(SHOP, "db", a_table(a_column()), (SchemaId(11), None), Epoch(77))

    key, _ = transcoder.copy_row(copy_line([b"a"]), AT)

    assert key is None
    assert transcoder.key((b"a",)) is None


def test_the_relation_is_told_for_changes_of_rows_and_for_nothing_else() -> None:
    assert relation_of(b"headU\0\0\x40\x01N", 4) == 0x4001
    assert relation_of(memoryview(b"D\xff\xff\xff\xffK")) == 2**32 - 1
    assert relation_of(b"B" + bytes(20)) is None


def test_only_arrays_are_left_to_the_reference_conversion() -> None:
    table = a_table(*(a_column(f"c{oid}", oid) for oid in (*TYPES, 999_999)))

    plan = table_plan(SHOP, "db", table, (SchemaId(1), None), Epoch(1))

    left = {column.type_name for column, way in zip(table.columns, plan.columns, strict=True) if way.code is Code.OTHER}
    assert left == {known.name for known in TYPES.values() if known.name.endswith("[]")}


@pytest.mark.parametrize(
    ("old", "kind", "new", "settled"),
    [
        (None, None, (b"1", UNCHANGED), InPlace(None, (b"1", UNCHANGED))),
        ((b"1", b"a"), OldKind.FULL, (b"1", UNCHANGED), InPlace((b"1", b"a"), (b"1", b"a"))),
        ((b"1", None), OldKind.KEY, (b"1", b"b"), InPlace(None, (b"1", b"b"))),
        ((b"1", None), OldKind.KEY, (UNCHANGED, b"b"), InPlace(None, (b"1", b"b"))),
        ((b"1", None), OldKind.KEY, (b"2", UNCHANGED), Move((b"1", None), (b"2", UNCHANGED))),
        ((b"1", b"a"), OldKind.FULL, (b"2", UNCHANGED), Move((b"1", b"a"), (b"2", b"a"))),
        ((b"1", None), OldKind.FULL, (b"2", UNCHANGED), Move((b"1", None), (b"2", UNCHANGED))),
    ],
)
def test_an_update_is_a_change_in_place_unless_its_key_changed(
    old: TupleData | None, kind: OldKind | None, new: TupleData, settled: InPlace | Move
) -> None:
    update = Update(TableId(1), old, kind, new)

    assert settle(ORDERS.columns, update) == settled
    for path in PATHS:
        transcoder = path.transcoder(SHOP, "db", ORDERS, (SchemaId(11), SchemaId(12)), Epoch(77))
        assert (transcoder.change(encode_message(update), AT) is None) == isinstance(settled, Move)
