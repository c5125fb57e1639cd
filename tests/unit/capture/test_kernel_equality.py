"""The compiled kernel against its oracle: the same bytes, the same refusals, for any table and any bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capture.pgoutput.messages import UNCHANGED, ColumnValue, Delete, Insert, Message, OldKind, TupleData, Update
from capture.transcode.choose import REFERENCE_PATH, kernel_path
from capture.transcode.contract import TableTranscoder
from capture.transcode.reference import Origin
from schemas.envelope import Op
from schemas.errors import MalformedMessage, PenstockError
from schemas.identifiers import Epoch, PipelineName, SchemaId, TableId
from schemas.pg_types.pg_type import ValueNotCarried
from schemas.pg_types.registry import TYPES, pg_type
from schemas.table import Column, TableSchema
from tests.support.builders import a_column, a_table, copy_line, encode_message

KERNEL_PATH = kernel_path()
if KERNEL_PATH is None:
    pytest.skip("the compiled kernel is not installed", allow_module_level=True)

pytestmark = pytest.mark.both_paths

NOW = 1_700_000_000_123_456_789
UNKNOWN_TYPE = 999_999
AT = Origin(commit_lsn=0x16_B374_D848, commit_ts=1_600_000_000_123_456, xid=753, lsn=0x16_B374_D000, ordinal=3)


@dataclass
class Both:
    """The two paths of one table."""

    kernel: TableTranscoder
    reference: TableTranscoder

    def agree(self, call: Callable[[TableTranscoder], object]) -> object:
        """What both give; a refusal is given as its error."""
        kernel, reference = _outcome(call, self.kernel), _outcome(call, self.reference)
        if isinstance(kernel, PenstockError) and isinstance(reference, PenstockError):
            assert (type(kernel), str(kernel), kernel.solution) == (type(reference), str(reference), reference.solution)
            assert getattr(kernel, "offset", None) == getattr(reference, "offset", None)
        else:
            assert kernel == reference
        return kernel


def _outcome(call: Callable[[TableTranscoder], object], path: TableTranscoder) -> object:
    try:
        return call(path)
    except PenstockError as error:
        return error


def both(table: TableSchema) -> Both:
    assert KERNEL_PATH is not None
    key_id = SchemaId(8) if table.key else None
    given_to_both = (PipelineName("shop"), "shöp db", table, (SchemaId(0x7FFF_FFFF), key_id), Epoch(77), lambda: NOW)
    return Both(KERNEL_PATH.transcoder(*given_to_both), REFERENCE_PATH.transcoder(*given_to_both))


# ---- what Postgres prints

DIGITS = st.text("0123456789", min_size=1, max_size=6)
ZONES = st.sampled_from(["", "+00", "-03", "+05:30", "+05:53:28", "-15:59:59"])
YEARS = st.integers(1, 10_000) | st.integers(1, 5_874_897) | st.sampled_from([1970, 2000, 294_246, 294_247, 294_276])


def _date(year: int, month: int, day: int, era: str) -> str:
    return f"{year:04}-{month:02}-{day:02}{era}"


def _time(hour: int, minute: int, second: int, fraction: str) -> str:
    return f"{hour:02}:{minute:02}:{second:02}{fraction}"


ERAS = st.sampled_from(["", "", " BC"])
PLAIN_DATES = st.builds(_date, YEARS, st.integers(1, 12), st.integers(1, 31), st.just(""))
DATES = st.builds(_date, YEARS, st.integers(1, 12), st.integers(1, 31), ERAS) | st.sampled_from(
    ["infinity", "-infinity"]
)
TIMES = st.builds(
    _time,
    st.integers(0, 24),
    st.integers(0, 59),
    st.integers(0, 60),
    st.just("") | DIGITS.map(".{}".format),
)
FAR = [
    "4714-11-24 00:00:00 BC",
    "4714-11-23 23:59:59.999999 BC",
    "294276-12-31 23:59:59.999999",
    "294277-01-01 00:00:00",
]
TIMESTAMPS = st.builds("{} {}{}{}".format, PLAIN_DATES, TIMES, ZONES, ERAS) | st.sampled_from(
    ["infinity", "-infinity", "294247-01-10 04:00:54.775806", "294247-01-10 04:00:54.775807", *FAR]
)
INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**31), 2**31 - 1) | st.integers(-9, 9)
EDGES = st.sampled_from([2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**19])
FLOATS = (
    st.floats().map(repr)
    | st.floats(width=32).map(repr)
    | st.builds("{}.{}e{}".format, INTEGERS, DIGITS, st.integers(-400, 400))
    | st.sampled_from(
        ["NaN", "Infinity", "-Infinity", "-0", "0.1", "1e-45", "4.9e-324", "1.7976931348623157e+308", "0"]
    )
)
STRINGS = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
SCALARS: dict[int, st.SearchStrategy[str]] = {
    16: st.sampled_from("tf"),
    **dict.fromkeys((20, 21, 23, 26), (INTEGERS | EDGES).map(str)),
    **dict.fromkeys((700, 701), FLOATS),
    1700: st.decimals().map(str),
    17: st.binary().map(lambda data: f"\\x{data.hex()}"),
    1082: DATES,
    1083: TIMES,
    **dict.fromkeys((1114, 1184), TIMESTAMPS),
    2950: st.uuids().map(str),
}
# Texts that a lenient parser takes and a strict one does not, and the other way round.
ODD_TEXTS = (
    "| |-|+1| 1|1 |1_000|--1|1\0|\uff11\uff12|0x1|00000000000000000000001|999999999999999999999999999999|nan|-inf|1e|.5"
    "|5.|1e5|infinity |Infinity|\\x0|\\xzz|\\x00 11|\\X00|x|T|true|2024-1-01|2024-13-99|0000-01-01|0000-01-01 BC"
    "|999999-12-31|99999-12-31 23:59:59|2024-01-01 BC |99999-12-31 23:59:59 BC|999999-12-31 23:59:59 BC|99:99:99"
    "|1:00:00|12:00:00.|12:00:00.1234567|2024-01-01 00:00:00+|2024-01-01 00:00:00+1|2024-01-01 00:00:00+01:"
    "|2024-01-01 00:00:00+01:02:03:04|2024-01-01 00:00:00.+01|2024-01-01|2024-01-01T00:00:00"
    '|\uff12\uff10\uff12\uff14-01-01|{|}|{NULL}|{"a\\"b",NULL}|{{1},{2}}|[0:1]={1,2}'
)
ODD = st.sampled_from(ODD_TEXTS.encode().split(b"|"))
INVALID_UTF8 = st.sampled_from(
    b"\xff|a\xc0\x80|\xed\xa0\x80|\xf4\x90\x80\x80|\xe2\x82|\xc3|\xf0\x80\x80\x80|\x80|\xf1\x80\x80|\xe0\x9f\xbf"
    b"|12345678\xf8\x88\x80\x80\x80|\xc3\x28|\xe1\x80\x28|\xf1\x80\x80\x28".split(b"|")
)


def _array(items: list[str | None], delimiter: str) -> str:
    return "{" + delimiter.join("NULL" if item is None else '"' + _quoted(item) + '"' for item in items) + "}"


def _nested(rows: list[list[str | None]], delimiter: str) -> str:
    return "{" + delimiter.join(_array(items, delimiter) for items in rows) + "}"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _printed(oid: int) -> st.SearchStrategy[str]:
    element = pg_type(oid).element
    if element is not None:
        items = st.lists(st.none() | _printed(element.oid), max_size=3)
        one, more = items.map(lambda items: _array(items, element.delimiter)), st.lists(items, min_size=1, max_size=3)
        return one | one.map("[0:2]={}".format) | more.map(lambda rows: _nested(rows, element.delimiter))
    return SCALARS.get(oid, STRINGS)


PRINTED = {oid: _printed(oid).map(str.encode) for oid in (*TYPES, UNKNOWN_TYPE)}
OIDS = st.sampled_from([*TYPES, *SCALARS, *SCALARS, 25, 25, UNKNOWN_TYPE])
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=9)


@st.composite
def tables(draw: st.DrawFn) -> TableSchema:
    names = draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))
    keyed = draw(st.booleans())
    return a_table(*(a_column(name, draw(OIDS), key=keyed and draw(st.booleans())) for name in names))


def _value_of(column: Column, *, odd: bool) -> st.SearchStrategy[bytes]:
    return PRINTED[column.type_oid] | ODD | INVALID_UTF8 | st.binary(max_size=12) if odd else PRINTED[column.type_oid]


@st.composite
def rows(draw: st.DrawFn, table: TableSchema, *, unchanged: bool = True) -> TupleData:
    """A row of the table; now and then with values that no server prints."""
    odd = draw(st.integers(0, 3)) == 0
    no_value: st.SearchStrategy[ColumnValue] = st.sampled_from([None, UNCHANGED]) if unchanged else st.none()
    return tuple(
        draw(_value_of(column, odd=odd)) if draw(st.integers(0, 4)) else draw(no_value) for column in table.columns
    )


ORIGINS = st.builds(
    Origin,
    commit_lsn=st.integers(0, 2**63 - 1),
    commit_ts=st.integers(-(2**53), 2**53),
    xid=st.none() | st.integers(0, 2**32 - 1),
    lsn=st.integers(0, 2**63 - 1),
    ordinal=st.integers(0, 2**40),
    snapshot=st.sampled_from(["false", "true", "last"]),
)


@given(st.data(), ORIGINS)
@settings(max_examples=200)
def test_decoded_rows_have_the_same_bytes_and_keys(data: st.DataObject, origin: Origin) -> None:
    table = data.draw(tables())
    before, after = data.draw(st.none() | rows(table)), data.draw(st.none() | rows(table))
    op = data.draw(st.sampled_from(Op))
    paths = both(table)

    paths.agree(lambda path: path.value(op, before, after, origin))
    for row in (before, after):
        if row is not None:
            paths.agree(_key(row))


def _key(row: TupleData) -> Callable[[TableTranscoder], object]:
    return lambda path: path.key(row)


@st.composite
def messages(draw: st.DrawFn, table: TableSchema) -> bytes:
    old, new = draw(rows(table)), draw(rows(table))
    if draw(st.booleans()):
        old = tuple(b if column.key else a for a, b, column in zip(old, new, table.columns, strict=True))
    kind, relation = draw(st.sampled_from(OldKind)), TableId(table.id)
    choices: list[Message] = [
        Insert(relation, new),
        Update(relation, None, None, new),
        Update(relation, old, kind, new),
        Delete(relation, old, kind),
    ]
    return encode_message(draw(st.sampled_from(choices)))


@given(st.data(), ORIGINS, st.binary(max_size=30))
@settings(max_examples=200)
def test_messages_have_the_same_bytes_wherever_in_a_frame_they_begin(
    data: st.DataObject, origin: Origin, head: bytes
) -> None:
    table = data.draw(tables())
    frame = head + data.draw(messages(table))
    paths = both(table)

    whole = paths.agree(lambda path: path.change(memoryview(frame), origin, len(head)))
    assert _same(whole, paths.agree(lambda path: path.change(frame[len(head) :], origin)))


def _same(one: object, other: object) -> bool:
    return str(one) == str(other) if isinstance(one, PenstockError) else one == other


@given(st.data(), ORIGINS)
@settings(max_examples=200)
def test_rows_of_copy_have_the_same_bytes(data: st.DataObject, origin: Origin) -> None:
    table = data.draw(tables())
    row = data.draw(rows(table, unchanged=False))

    both(table).agree(lambda path: path.copy_row(copy_line(row), origin))


ESCAPES = st.lists(
    st.sampled_from(
        [b"\\", b"\\N", b"\t", b"\n", b"\\.", b"\\x", b"\\x4", b"\\x41", b"\\1", b"\\101", b"\\777", b"8", b"N"]
    )
    | st.binary(max_size=2)
).map(b"".join)


@given(ESCAPES, st.integers(0, 3), st.booleans())
def test_any_line_is_the_same_row_of_copy_or_the_same_refusal(line: bytes, columns: int, ended: bool) -> None:  # noqa: FBT001
    table = TableSchema(TableId(1), a_table().name, tuple(a_column(f"c{i}", 17 if i else 25) for i in range(columns)))

    both(table).agree(lambda path: path.copy_row(line + b"\n" if ended else line, AT))


ALL_TYPES = a_table(
    *(a_column(f"c{oid}", oid, key=oid in {20, 25}) for oid in TYPES),
)
ALL_VALUES: TupleData = tuple(
    UNCHANGED if index % 7 == 3 else None if index % 11 == 5 else value
    for index, value in enumerate(
        {16: b"t", 17: b"\\x00ff", 700: b"1.5", 701: b"-2.5e-3", 1082: b"2024-02-29", 1083: b"24:00:00"}.get(
            oid,
            b"2024-02-29 12:34:56.789+05:30" if oid in {1114, 1184} else b"{}" if TYPES[oid].element else b"7",
        )
        for oid in TYPES
    )
)


def _all_messages() -> dict[str, bytes]:
    row, other = ALL_VALUES, tuple(b"8" if value == b"7" else value for value in ALL_VALUES)
    return {
        "insert": encode_message(Insert(TableId(1), row)),
        "update": encode_message(Update(TableId(1), None, None, row)),
        "update with the old row": encode_message(Update(TableId(1), row, OldKind.FULL, row)),
        "move": encode_message(Update(TableId(1), other, OldKind.KEY, row)),
        "delete by key": encode_message(Delete(TableId(1), row, OldKind.KEY)),
        "delete of the whole row": encode_message(Delete(TableId(1), row, OldKind.FULL)),
    }


MESSAGES = _all_messages()
ALL = both(ALL_TYPES)
BY_NAME = pytest.mark.parametrize("name", MESSAGES)


@BY_NAME
def test_every_type_at_once_has_the_same_bytes(name: str) -> None:
    outcome = ALL.agree(lambda path: path.change(MESSAGES[name], AT))

    assert outcome is None if name == "move" else isinstance(outcome, tuple)


@BY_NAME
def test_every_truncation_of_a_message_is_refused_where_it_ends(name: str) -> None:
    message = MESSAGES[name]

    for length in range(len(message)):
        refusal = ALL.agree(_change(message[:length]))
        assert isinstance(refusal, MalformedMessage)
        assert 0 <= refusal.offset <= length
    assert isinstance(ALL.agree(_change(message + b"\0")), MalformedMessage)


def _change(frame: bytes) -> Callable[[TableTranscoder], object]:
    return lambda path: path.change(frame, AT)


@given(st.sampled_from(list(MESSAGES.values())), st.data())
@settings(max_examples=300)
def test_a_message_with_wrong_bytes_has_the_same_outcome(message: bytes, data: st.DataObject) -> None:
    damaged = bytearray(message)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))

    ALL.agree(_change(bytes(damaged)))


@pytest.mark.parametrize("size", [100, 0x3FFF_FFFF, 0x7FFF_FFFF, 0xFFFF_FFFF])
def test_a_length_that_the_message_does_not_have_is_refused_before_anything_is_allotted(size: int) -> None:
    message = b"I\0\0\x40\x01N\0\x02t" + struct.pack(">I", size) + b"short"

    refusal = both(a_table()).agree(lambda path: path.change(message, AT))

    assert isinstance(refusal, MalformedMessage)
    assert refusal.offset == 13


@pytest.mark.parametrize("row", [(), (b"1",), (b"1", b"a", UNCHANGED)])
def test_a_row_of_another_width_is_malformed(row: TupleData) -> None:
    paths = both(a_table())
    messages_of_it = [
        encode_message(Insert(TableId(1), row)),
        encode_message(Update(TableId(1), row, OldKind.FULL, (b"1", b"a"))),
        encode_message(Update(TableId(1), (b"1", b"a"), OldKind.FULL, row)),
        encode_message(Delete(TableId(1), row, OldKind.KEY)),
    ]

    outcomes = [paths.agree(_change(message)) for message in messages_of_it]
    outcomes += [paths.agree(_key(row)), paths.agree(lambda path: path.value(Op.CREATE, None, row, AT))]
    assert all(isinstance(outcome, MalformedMessage) for outcome in outcomes)


@pytest.mark.parametrize(
    ("oid", "value"),
    [
        (23, b"2147483648"),
        (20, b"9223372036854775808"),
        (20, b"secret"),
        (25, b"secret\xff"),
        (1184, b"294277-01-01 00:00:00+00"),
        (1114, b"4714-11-23 23:59:59.999999 BC"),
        (1114, b"999999-12-31 23:59:59 BC"),
        (1082, b"9999999-12-31"),
        (1007, b"{1,2147483648}"),
        (701, b"secret"),
        (17, b"\\xsecret"),
    ],
)
def test_a_value_that_its_type_cannot_carry_stops_both_and_is_never_shown(oid: int, value: bytes) -> None:
    table = a_table(a_column("id", 20, key=True), a_column("wallet", oid))

    refusal = both(table).agree(lambda path: path.copy_row(copy_line((b"1", value)), AT))

    assert isinstance(refusal, ValueNotCarried)
    assert "wallet" in str(refusal)
    assert "secret" not in str(refusal)
    assert "2147483648" not in str(refusal)


def test_a_large_row_between_small_ones_changes_nothing() -> None:
    paths = both(a_table())
    sizes = [1, 4_000, 5_000, 1_500_000, 2, 100_000]

    for size in sizes:
        row: Sequence[ColumnValue] = (b"1", b"\\" + b"x" * size)
        paths.agree(lambda path, row=row: path.copy_row(copy_line(row), AT))  # type: ignore[misc]


def test_a_table_with_a_thousand_columns_has_the_same_bytes() -> None:
    table = a_table(*(a_column(f"column {i}", 20, key=i % 3 == 0) for i in range(1000)))

    assert isinstance(both(table).agree(lambda path: path.copy_row(copy_line([b"-1"] * 1000), AT)), tuple)
