from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture.pgoutput.decoder import LARGEST_LSN, LARGEST_TIME, decode
from capture.pgoutput.messages import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    OldKind,
    Origin,
    Relation,
    RelationColumn,
    Truncate,
    TupleData,
    Type,
    Update,
)
from schemas.errors import MalformedMessage
from schemas.identifiers import TableId
from schemas.lsn import Lsn
from schemas.table import ReplicaIdentity
from tests.support.builders import encode_message

ORDERS = TableId(0x4001)
COMMIT = Lsn.parse("16/B374D848")

MESSAGES: dict[str, tuple[bytes, Message]] = {
    "begin": (
        b"B" + bytes.fromhex("00000016b374d848 0000000000000001 000002f1"),
        Begin(COMMIT, 946_684_800_000_001, 753),
    ),
    "begin before 2000": (
        b"B" + bytes.fromhex("00000016b374d848 ffffffffffffffff 000002f1"),
        Begin(COMMIT, 946_684_799_999_999, 753),
    ),
    "commit": (
        b"C\0" + bytes.fromhex("00000016b374d848 00000016b374d878 0000000000000000"),
        Commit(COMMIT, Lsn.parse("16/B374D878"), 946_684_800_000_000),
    ),
    "origin": (b"O" + bytes.fromhex("00000016b374d848") + b"upstream\0", Origin(COMMIT, "upstream")),
    "relation": (
        b"R\0\0\x40\x01public\0orders\0d\0\x02\x01id\0\0\0\0\x14\xff\xff\xff\xff\0pre\xc3\xa7o\0\0\0\x06\xa4\0\x0a\0\x06",
        Relation(
            ORDERS,
            "public",
            "orders",
            ReplicaIdentity.DEFAULT,
            (RelationColumn("id", 20, -1, key=True), RelationColumn("preço", 1700, 0x000A_0006, key=False)),
        ),
    ),
    "relation of the catalog": (
        b"R\0\0\x40\x01\0pg_statistic\0n\0\0",
        Relation(ORDERS, "pg_catalog", "pg_statistic", ReplicaIdentity.NOTHING, ()),
    ),
    "type": (b"Y\0\0\x60\x01shop\0mood\0", Type(0x6001, "shop", "mood")),
    "insert": (b"I\0\0\x40\x01N\0\x03t\0\0\0\x0242nt\0\0\0\0", Insert(ORDERS, (b"42", None, b""))),
    "update": (b"U\0\0\x40\x01N\0\x02t\0\0\0\x017u", Update(ORDERS, None, None, (b"7", UNCHANGED))),
    "update of the key": (
        b"U\0\0\x40\x01K\0\x02t\0\0\0\x016nN\0\x02t\0\0\0\x017u",
        Update(ORDERS, (b"6", None), OldKind.KEY, (b"7", UNCHANGED)),
    ),
    "update with the old row": (
        b"U\0\0\x40\x01O\0\x01t\0\0\0\x016N\0\x01t\0\0\0\x017",
        Update(ORDERS, (b"6",), OldKind.FULL, (b"7",)),
    ),
    "delete by key": (b"D\0\0\x40\x01K\0\x01t\0\0\0\x017", Delete(ORDERS, (b"7",), OldKind.KEY)),
    "delete of the whole row": (b"D\0\0\x40\x01O\0\x01t\0\0\0\x017", Delete(ORDERS, (b"7",), OldKind.FULL)),
    "truncate": (
        b"T\0\0\0\x02\x03\0\0\x40\x01\0\0\x40\x02",
        Truncate((ORDERS, TableId(0x4002)), cascade=True, restart_identity=True),
    ),
    "truncate, plainly": (b"T\0\0\0\x01\0\0\0\x40\x01", Truncate((ORDERS,), cascade=False, restart_identity=False)),
    "logical message": (
        b"M\x01" + bytes.fromhex("00000016b374d848") + b"app\0\0\0\0\x03a\0b",
        LogicalMessage(transactional=True, lsn=COMMIT, prefix="app", content=b"a\0b"),
    ),
    "logical message outside a transaction": (
        b"M\0" + bytes.fromhex("00000016b374d848") + b"\0\0\0\0\0",
        LogicalMessage(transactional=False, lsn=COMMIT, prefix="", content=b""),
    ),
}
BY_NAME = pytest.mark.parametrize("name", MESSAGES)


@BY_NAME
def test_each_message_is_decoded_from_the_bytes_that_the_server_sends(name: str) -> None:
    data, expected = MESSAGES[name]

    assert decode(data) == expected
    assert decode(memoryview(b"head" + data)[4:]) == expected


@BY_NAME
def test_every_truncation_of_a_message_is_refused(name: str) -> None:
    data, _ = MESSAGES[name]

    for length in range(len(data)):
        with pytest.raises(MalformedMessage) as caught:
            decode(data[:length])
        assert 0 <= caught.value.offset <= length


@BY_NAME
def test_a_byte_after_the_end_of_a_message_is_refused_where_it_stands(name: str) -> None:
    data, _ = MESSAGES[name]

    with pytest.raises(MalformedMessage, match="left over") as caught:
        decode(data + b"\0")

    assert caught.value.offset == len(data)


@pytest.mark.parametrize(
    ("data", "reason", "offset"),
    [
        (b"", "ends early", 0),
        (b"Z", "tag 0x5a", 0),
        (b"S\0\0\0\x01\x01", "tag 0x53", 0),
        (b"I\0\0\x40\x01N\0\x01b\0\0\0\x01x", "binary", 8),
        (b"I\0\0\x40\x01N\0\x01z", "No value has the tag 0x7a", 8),
        (b"I\0\0\x40\x01O\0\0", "No new tuple has the tag 0x4f", 5),
        (b"I\0\0\x40\x01N\0\x01t\xff\xff\xff\xff", "ends early", 13),
        (b"U\0\0\x40\x01Z\0\0", "No tuple has the tag 0x5a", 5),
        (b"U\0\0\x40\x01K\0\0K\0\0", "No new tuple has the tag 0x4b", 8),
        (b"D\0\0\x40\x01N\0\0", "No old tuple has the tag 0x4e", 5),
        (b"C\x01" + bytes(24), "flags 0x01", 1),
        (b"M\x02" + bytes(13), "flags 0x02", 1),
        (b"B\x80" + bytes(19), "No position", 1),
        (b"B" + bytes(8) + b"\x7f" + bytes(11), "so far from 1970", 9),
        (b"T\0\0\0\0\x04", "flags 0x04", 5),
        (b"T\xff\xff\xff\xff\0\0\0\x40\x01", "ends early", 6),
        (b"R\0\0\x40\x01public\0orders\0x\0\0", "No replica identity has the tag 0x78", 19),
        (b"R\0\0\x40\x01public\0orders\0d\0\x01\x02id\0" + bytes(8), "flags 0x02", 22),
        (b"R\0\0\x40\x01pub\xfflic\0orders\0d\0\0", "not UTF-8", 8),
    ],
)
def test_what_is_not_a_message_is_refused_with_its_reason_and_offset(data: bytes, reason: str, offset: int) -> None:
    with pytest.raises(MalformedMessage, match=reason) as caught:
        decode(data)

    assert caught.value.offset == offset


def test_a_refusal_never_shows_a_value_of_the_row() -> None:
    secret = b"I\0\0\x40\x01N\0\x02t\0\0\0\x06secretz"

    with pytest.raises(MalformedMessage) as caught:
        decode(secret)

    assert "secret" not in str(caught.value)


TAGGED_BYTES = st.builds(bytes.__add__, st.sampled_from([tag.encode() for tag in "BCORYIUDTMZ"]), st.binary())


@given(TAGGED_BYTES | st.binary())
def test_any_bytes_are_either_a_message_or_malformed(data: bytes) -> None:
    with suppress(MalformedMessage):
        message = decode(data)
        assert decode(encode_message(message)) == message


@given(st.sampled_from([data for data, _ in MESSAGES.values()]), st.data())
def test_a_message_with_one_wrong_byte_is_either_a_message_or_malformed(message: bytes, draw: st.DataObject) -> None:
    damaged = bytearray(message)
    damaged[draw.draw(st.integers(0, len(message) - 1))] = draw.draw(st.integers(0, 255))

    with suppress(MalformedMessage):
        decode(bytes(damaged))


OIDS = st.integers(0, 2**32 - 1)
TABLES = OIDS.map(TableId)
LSNS = st.integers(0, LARGEST_LSN).map(Lsn)
TIMES = st.integers(-LARGEST_TIME, LARGEST_TIME)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
SCHEMAS = NAMES.filter(bool)
TUPLES: st.SearchStrategy[TupleData] = st.lists(st.binary() | st.none() | st.just(UNCHANGED), max_size=8).map(tuple)
COLUMNS = st.builds(RelationColumn, NAMES, OIDS, st.integers(-(2**31), 2**31 - 1), key=st.booleans())
ANY_MESSAGE: st.SearchStrategy[Message] = st.one_of(
    st.builds(Insert, TABLES, TUPLES),
    st.builds(Update, TABLES, st.none(), st.none(), TUPLES),
    st.builds(Update, TABLES, TUPLES, st.sampled_from(OldKind), TUPLES),
    st.builds(Delete, TABLES, TUPLES, st.sampled_from(OldKind)),
    st.builds(Begin, LSNS, TIMES, OIDS),
    st.builds(Commit, LSNS, LSNS, TIMES),
    st.builds(
        Relation, TABLES, SCHEMAS, NAMES, st.sampled_from(ReplicaIdentity), st.lists(COLUMNS, max_size=4).map(tuple)
    ),
    st.builds(Type, OIDS, SCHEMAS, NAMES),
    st.builds(Truncate, st.lists(TABLES, max_size=4).map(tuple), st.booleans(), st.booleans()),
    st.builds(LogicalMessage, st.booleans(), LSNS, NAMES, st.binary()),
    st.builds(Origin, LSNS, NAMES),
)


@given(ANY_MESSAGE)
def test_every_message_survives_its_encoding(message: Message) -> None:
    assert decode(encode_message(message)) == message
