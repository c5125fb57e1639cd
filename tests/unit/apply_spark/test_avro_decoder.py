"""The compiled decoder against fastavro, for any table and any values; and damaged bytes, which it must refuse."""

from __future__ import annotations

import io
import math
import random
import time
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from apply_spark.arrow_decode import is_installed
from apply_spark.avro_plan import Damaged, plan
from schemas.envelope import copy_reader_schema, envelope_schema, reader_schema
from schemas.identifiers import PipelineName, SchemaId
from schemas.pg_types.registry import TYPES
from schemas.table import TableSchema
from schemas.wire import header
from tests.fuzz_kernel import GuardedMemory, mutated
from tests.support.avro_records import encoded as encoded_with
from tests.support.avro_records import plain, records_of_all_types
from tests.support.builders import INT8, a_column, a_table

if not is_installed():
    pytest.skip("the compiled decoder is not installed", allow_module_level=True)

from apply_spark.avro_decoder import AvroDecoder

pytestmark = pytest.mark.both_paths

HEAD, OTHER = header(SchemaId(0x1234_5678)), header(SchemaId(0x1234_5679))
NOTHING = st.none()


def values(avro: Any) -> st.SearchStrategy[Any]:  # noqa: ANN401 -- Avro is text, list or object
    scalars: dict[str, st.SearchStrategy[Any]] = {
        "null": NOTHING,
        "boolean": st.booleans(),
        "int": st.integers(-(2**31), 2**31 - 1),
        "long": st.integers(-(2**63), 2**63 - 1) | st.integers(-70, 70),
        "float": st.floats(width=32),
        "double": st.floats(),
        "string": st.text(st.characters(codec="utf-8")),
        "bytes": st.binary(),
    }
    match avro:
        case str():
            return scalars[avro]
        case list():
            return st.one_of([values(branch) for branch in avro])
        case {"type": "array", "items": items}:
            return st.lists(values(items), max_size=5)
        case _:
            return st.fixed_dictionaries({field["name"]: values(field["type"]) for field in avro["fields"]})


def encoded(schema: dict[str, Any], value: Any, head: bytes = HEAD) -> bytes:  # noqa: ANN401 -- any Avro value
    return encoded_with(schema, value, head)


def record(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": avro} for field, avro in fields]}


def decoder(schema: dict[str, Any], reader: dict[str, Any] | None = None, head: bytes = HEAD) -> AvroDecoder:
    return AvroDecoder(head, plan(schema, reader or schema))


def decoded(made: AvroDecoder, *records: bytes | None) -> list[Any]:
    array = made.decode(pa.array(records, pa.binary()))
    array.validate(full=True)
    assert array.type == made.type
    return [comparable(value) for value in array.to_pylist()]


def comparable(value: Any) -> Any:  # noqa: ANN401 -- any Avro value
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case {"member0": items, "member1": text}:  # a union of two, of which fastavro gives the one that is there
            return comparable(items if text is None else text)
        case dict():
            return {key: comparable(each) for key, each in value.items()}
        case list():
            return [comparable(each) for each in value]
        case _:
            return value


@st.composite
def tables(draw: st.DrawFn) -> TableSchema:
    oids = draw(st.lists(st.sampled_from([*TYPES]), max_size=6))
    columns = [a_column(f"c {number}", oid) for number, oid in enumerate(oids)]
    return a_table(a_column("id", INT8, key=True), *columns)


@given(tables(), st.sampled_from([reader_schema, copy_reader_schema]), st.data())
@settings(max_examples=200)
def test_the_decoder_reads_what_fastavro_reads(
    table: TableSchema, reader_of: Callable[[dict[str, Any]], dict[str, Any]], data: st.DataObject
) -> None:
    schema = envelope_schema(PipelineName("shop"), table)
    writer, reader = plain(schema), reader_of(schema)
    row = writer["fields"][0]["type"][1]
    images = NOTHING | values(row)
    envelopes = st.fixed_dictionaries(
        {field["name"]: values(field["type"]) for field in writer["fields"][2:]} | {"before": images, "after": images}
    )
    written = [encoded(writer, each) for each in data.draw(st.lists(envelopes, max_size=6))]
    parsed, wanted = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    expected = [fastavro.schemaless_reader(io.BytesIO(each[5:]), parsed, wanted) for each in written]

    assert decoded(decoder(schema, reader), *written) == comparable(expected)


@given(st.lists(st.sampled_from([0, 1, 2, 3]), max_size=40), st.integers(0, 40))
def test_records_of_another_schema_are_passed_over(kinds: list[int], start: int) -> None:
    """Also those that are too short for a header, or null; also in a slice."""
    schema = record("R", ("a", ["null", "long"]), ("b", "string"))
    records = [
        (encoded(schema, {"a": n, "b": str(n)}), encoded(schema, {"a": n, "b": ""}, OTHER), HEAD[:4], None)[kind]
        for n, kind in enumerate(kinds)
    ]
    array = pa.array(records, pa.binary()).slice(start)

    found = decoder(schema).decode(array).to_pylist()

    assert found == [{"a": n, "b": str(n)} for n, kind in enumerate(kinds) if kind == 0 and n >= start]


def test_rows_without_a_value_lie_before_between_and_after() -> None:
    schema = record(
        "R", ("a", ["null", "string"]), ("b", ["boolean", "null"]), ("c", ["null", record("I", ("d", "int"))])
    )
    rows = [{"a": None, "b": None, "c": None}] * 20
    rows[7] = {"a": "seven", "b": True, "c": {"d": 7}}
    rows[11] = {"a": "", "b": False, "c": {"d": -1}}

    assert decoded(decoder(schema), *[encoded(schema, row) for row in rows]) == rows


def test_a_row_without_columns_is_there_or_null() -> None:
    schema = record("R", ("a", ["null", record("Empty")]))

    assert decoded(decoder(schema), HEAD + b"\x02", HEAD + b"\x00") == [{"a": {}}, {"a": None}]


def test_a_decoder_serves_one_batch_after_the_other() -> None:
    schema = record("R", ("a", {"type": "array", "items": ["null", "string"]}))
    made = decoder(schema)
    batches = [[{"a": ["x", None, str(n)]}, {"a": []}] for n in range(3)]

    arrays = [made.decode(pa.array([encoded(schema, row) for row in batch])) for batch in batches]

    assert [array.to_pylist() for array in arrays] == batches


@given(st.lists(values(["null", {"type": "array", "items": ["null", "long"]}, "string"]), max_size=9))
def test_a_union_of_more_types_is_a_struct_with_spark_s_names(items: list[Any]) -> None:
    schema = record("R", ("u", ["null", {"type": "array", "items": ["null", "long"]}, "string"]))
    made = decoder(schema)

    found = made.decode(pa.array([encoded(schema, {"u": item}) for item in items], pa.binary())).to_pylist()

    members = pa.struct([("member0", pa.list_(pa.field("element", pa.int64()))), ("member1", pa.string())])
    assert made.type == pa.struct([("u", members)])
    assert [row["u"] for row in found] == [
        None
        if item is None
        else {"member0": item if isinstance(item, list) else None, "member1": item if isinstance(item, str) else None}
        for item in items
    ]


def test_arrays_come_in_blocks_with_and_without_a_size() -> None:
    schema = record("R", ("a", {"type": "array", "items": "long"}))

    assert decoded(decoder(schema), HEAD + b"\x02\x02\x05\x06\x04\x06\x08\x00") == [{"a": [1, 2, 3, 4]}]


@pytest.mark.parametrize(
    ("avro", "body", "reason"),
    [
        ("long", b"", "too early"),
        ("long", b"\xff" * 9, "too early"),
        ("long", b"\xff" * 9 + b"\x02", "number"),
        ("long", b"\x80" * 10 + b"\x00", "number"),
        ("long", b"\x00\x00", "longer"),
        ("int", b"\x80\x80\x80\x80\x10", "number"),
        ("float", b"\x00\x00\x00", "too early"),
        ("double", b"\x00" * 7, "too early"),
        ("boolean", b"", "too early"),
        ("boolean", b"\x02", "boolean"),
        ("string", b"\x01", "length"),
        ("string", b"\x04a", "length"),
        ("bytes", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "length"),
        ("string", b"\x02\xff", "UTF-8"),
        (["null", "long"], b"\x04", "branch"),
        (["null", "long"], b"\x01", "branch"),
        (["null", "long", "string"], b"\x06", "branch"),
        ({"type": "array", "items": "long"}, b"\x02\x02", "too early"),
        ({"type": "array", "items": "long"}, b"\x7e\x02\x00", "length"),
        ({"type": "array", "items": "long"}, b"\x01\x7e\x02\x00", "length"),
        ({"type": "array", "items": "long"}, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", "length"),
    ],
)
@pytest.mark.parametrize("is_read", [True, False])
def test_damage_is_named_with_its_place(avro: Any, body: bytes, reason: str, is_read: bool) -> None:  # noqa: ANN401, FBT001
    schema = record("R", ("first", "long"), ("value", avro))
    reader = schema if is_read else record("R", ("first", "long"))
    if not is_read and (avro == "int" or reason in ("boolean", "UTF-8")):
        pytest.skip("what is passed over is not looked at")
    fine = encoded(record("R", ("first", "long")), {"first": 1}, OTHER)

    with pytest.raises(Damaged, match=reason) as caught:
        decoder(schema, reader).decode(pa.array([fine, HEAD + b"\x02" + body]))

    assert caught.value.row == 1


@given(st.binary(max_size=12) | st.text(st.characters(codec="utf-8", min_codepoint=0x70)).map(str.encode))
@example(b"\xed\xa0\x80")  # half of a surrogate pair
@example(b"\xe0\x80\x80")  # longer than it need be
@example(b"\xf4\x90\x80\x80")  # beyond the last character
def test_a_text_is_read_where_python_reads_it(text: bytes) -> None:
    schema = record("R", ("a", "string"))
    body = encoded(record("R", ("a", "bytes")), {"a": text})
    try:
        expected = text.decode()
    except UnicodeDecodeError:
        with pytest.raises(Damaged, match="UTF-8"):
            decoder(schema).decode(pa.array([body]))
    else:
        assert decoded(decoder(schema), body) == [{"a": expected}]


@pytest.fixture(scope="module")
def real_records() -> tuple[dict[str, Any], list[bytes]]:
    return records_of_all_types(HEAD)


@pytest.mark.parametrize("reader_of", [reader_schema, copy_reader_schema])
def test_a_record_that_is_cut_anywhere_is_damaged(
    real_records: tuple[dict[str, Any], list[bytes]], reader_of: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    schema, records = real_records
    made, memory = decoder(schema, reader_of(schema)), GuardedMemory()
    for record_ in records:
        for size in range(len(HEAD), len(record_)):
            with pytest.raises(Damaged):
                made.decode(at_the_end(memory, record_[:size]))


def test_damaged_bytes_are_refused_or_a_value_and_never_read_past_their_end(
    real_records: tuple[dict[str, Any], list[bytes]],
) -> None:
    schema, records = real_records
    made, memory = decoder(schema, reader_schema(schema)), GuardedMemory()
    chance = random.Random(time.time_ns())  # noqa: S311 -- not for secrets
    seen = set()
    for _ in range(20_000):
        damaged = HEAD + mutated(chance.choice(records)[len(HEAD) :], chance)
        try:
            array = made.decode(at_the_end(memory, damaged[-memory.size :]))
        except Damaged as error:
            seen.add(str(error))
        else:
            array.validate(full=True)
    assert len(seen) >= 6


def at_the_end(memory: GuardedMemory, record_: bytes) -> pa.BinaryArray:
    offsets = pa.array([0, len(record_)], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(memory.at_the_end(record_))])
