"""What a pump takes, what it leaves, and that the compiled one and its oracle do the same with any frames."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capture.errors import RecordTooLarge
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
    Relation,
    Truncate,
    Update,
)
from capture.pgoutput.stream import XLogData, decode_frame
from capture.transcode.choose import REFERENCE_PATH, kernel_path
from schemas.envelope import envelope_schema
from schemas.errors import MalformedMessage
from schemas.identifiers import PipelineName, TableId, TableName
from schemas.lsn import Lsn
from schemas.pg_types.pg_type import ValueNotCarried
from schemas.table import ReplicaIdentity, TableSchema
from schemas.wire import HEADER_BYTES
from tests.support.builders import a_column, a_table
from tests.support.stream_frames import LARGEST, Pumping, keepalive, messages_of, xlog

pytestmark = pytest.mark.both_paths

ORDERS = a_table(table_id=1)
EVENTS = a_table(a_column("n", 20), name=TableName("public", "events"), table_id=2)
BEGIN = Begin(Lsn(30), 1_600_000_000_123_456, 7)
COMMIT = Commit(Lsn(30), Lsn(38), 1_600_000_000_123_456)
INSERT = Insert(ORDERS.id, (b"1", b"a"))
MOVE = Update(ORDERS.id, (b"1", None), OldKind.KEY, (b"2", b"a"))
TOO_LARGE = Insert(EVENTS.id, (b"9223372036854775808",))
PATHS = [path for path in (REFERENCE_PATH, kernel_path()) if path is not None]


@pytest.fixture(params=PATHS, ids=lambda path: path.pump.__name__)
def pumping(request: pytest.FixtureRequest) -> Pumping:
    return Pumping(request.param, (ORDERS, EVENTS))


def test_each_change_is_sent_with_its_position_in_the_transaction(pumping: Pumping) -> None:
    update = Update(ORDERS.id, None, None, (b"1", UNCHANGED))
    delete = Delete(ORDERS.id, (b"1", None), OldKind.KEY)

    frames = [xlog(BEGIN), xlog(INSERT, 20), xlog(update, 21), xlog(Insert(EVENTS.id, (b"5",)), 22), xlog(delete, 23)]
    assert pumping.run(*frames) is None

    sources = [_source({"orders": ORDERS, "events": EVENTS}[sent[0]], sent) for sent in pumping.sent]
    found = [(each["table"], each["lsn"], each["commit_lsn"], each["ordinal"]) for each in sources]
    assert found == [("orders", 20, 30, 0), ("orders", 21, 30, 1), ("orders", 23, 30, 3), ("events", 22, 30, 2)]
    assert {(each["txId"], each["ts_us"]) for each in sources} == {(7, BEGIN.commit_ts)}


def _source(schema: TableSchema, sent: tuple[str, bytes | None, bytes]) -> dict[str, Any]:
    envelope = envelope_schema(PipelineName("shop"), schema)
    record = fastavro.schemaless_reader(io.BytesIO(sent[2][HEADER_BYTES:]), envelope, None)
    assert isinstance(record, dict)
    source = record["source"]
    assert isinstance(source, dict)
    return source


def test_a_commit_closes_the_transaction_and_says_where_a_window_may_end(pumping: Pumping) -> None:
    pump = pumping.pump

    pumping.run(xlog(BEGIN), xlog(INSERT))
    assert (pump.in_transaction, pump.safe) == (True, 100)
    pumping.run(xlog(COMMIT))

    assert (pump.in_transaction, pump.safe, pump.origin.commit_ts) == (False, 38, BEGIN.commit_ts)


def test_what_was_sent_is_counted_for_each_topic_and_schema_until_a_checkpoint_covers_it(pumping: Pumping) -> None:
    pump, orders = pumping.pump, pumping.tables[ORDERS.id]

    pumping.run(xlog(BEGIN), xlog(INSERT), xlog(Insert(EVENTS.id, (b"5",))), xlog(INSERT))
    pump.send(orders, None, b"truncated")

    assert pump.rows == 4
    sizes = [len(value) for topic, _, value in pumping.sent if topic == "orders"]
    assert pump.moved() == {("orders", 1): (3, sum(sizes)), ("events", 2): (1, len(pumping.sent[2][2]))}
    pump.reset()
    assert (pump.rows, pump.moved()) == (0, {})
    pumping.run(xlog(INSERT))
    assert pump.moved() == {("orders", 1): (1, len(pumping.sent[-1][2]))}


def test_it_stops_at_the_commit_that_fills_the_window_and_never_inside_a_transaction(pumping: Pumping) -> None:
    pumping.pump.full = 2
    frames = [xlog(each) for each in (BEGIN, INSERT, INSERT, INSERT, COMMIT, BEGIN, INSERT)]

    assert pumping.run(*frames) is None

    assert (pumping.pump.rows, pumping.pump.in_transaction) == (3, False)
    assert pumping.pump.used == len(messages_of(*frames[:5]))


@pytest.mark.parametrize("rest", [b"", b"d", b"d\0\0\0", messages_of(xlog(INSERT))[:-1], b"c\0\0\0\4", b"E\0\0\0\5\0"])
def test_it_stops_before_what_is_cut_off_and_before_what_is_no_data(pumping: Pumping, rest: bytes) -> None:
    whole = messages_of(xlog(BEGIN), xlog(INSERT))

    assert pumping.pump.run(memoryview(whole + rest)) is None

    assert (pumping.pump.used, pumping.pump.rows) == (len(whole), 1)


def test_a_length_that_does_not_hold_itself_is_refused(pumping: Pumping) -> None:
    with pytest.raises(MalformedMessage):
        pumping.pump.run(b"d\0\0\0\3abc")


LEFT: dict[str, bytes] = {
    "move": xlog(MOVE),
    "truncate": xlog(Truncate((ORDERS.id,), cascade=False, restart_identity=False)),
    "relation": xlog(Relation(ORDERS.id, "public", "orders", ReplicaIdentity.DEFAULT, ())),
    "message": xlog(LogicalMessage(transactional=True, lsn=Lsn(1), prefix="p", content=b"c")),
    "keepalive": keepalive(99),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_not_one_record_of_a_change_is_left_and_nothing_moves(pumping: Pumping, name: str) -> None:
    pumping.run(xlog(BEGIN), xlog(INSERT))

    assert pumping.run(LEFT[name], xlog(INSERT)) == LEFT[name]

    assert pumping.pump.used == len(messages_of(LEFT[name]))
    assert (pumping.pump.rows, pumping.pump.origin.ordinal, pumping.pump.safe) == (1, 1, 100)


def test_a_table_that_was_stopped_is_left_and_one_that_goes_on_is_taken_again(pumping: Pumping) -> None:
    orders = pumping.tables[ORDERS.id]
    pumping.run(xlog(BEGIN), xlog(INSERT))

    orders.errored = True
    left = pumping.run(xlog(INSERT))
    orders.errored = False
    taken = pumping.run(xlog(INSERT))

    assert left == xlog(INSERT)
    assert taken is None
    assert len(pumping.sent) == 2


def test_a_table_that_comes_back_with_another_shape_is_written_by_its_new_transcoder(pumping: Pumping) -> None:
    other = Pumping(pumping.path, (a_table(a_column("id", 20), name=ORDERS.name, table_id=1),))
    pumping.run(xlog(BEGIN), xlog(INSERT))

    pumping.tables[ORDERS.id] = other.tables[ORDERS.id]
    pumping.run(xlog(Insert(ORDERS.id, (b"7",))))

    assert len(pumping.sent) == 2


def test_a_value_that_is_not_carried_names_its_table_and_leaves_its_position_to_the_caller(pumping: Pumping) -> None:
    with pytest.raises(ValueNotCarried):
        pumping.run(xlog(BEGIN), xlog(INSERT), xlog(TOO_LARGE, 44), xlog(INSERT))

    assert pumping.pump.table is pumping.tables[EVENTS.id]
    assert (pumping.pump.origin.ordinal, pumping.pump.rows) == (1, 1)
    assert pumping.pump.used == len(messages_of(xlog(BEGIN), xlog(INSERT), xlog(TOO_LARGE)))
    assert pumping.pump.moved().keys() == {("orders", 1)}
    assert len(pumping.sent) == 1, "what came before it is sent"


def test_a_record_larger_than_kafka_takes_is_not_sent_and_not_counted(pumping: Pumping) -> None:
    huge = Insert(ORDERS.id, (b"2", b"x" * LARGEST))

    with pytest.raises(RecordTooLarge, match=r"100,\d\d\d bytes; 100,000 are allowed"):
        pumping.run(xlog(BEGIN), xlog(INSERT), xlog(huge))
    with pytest.raises(RecordTooLarge):
        pumping.pump.send(pumping.tables[ORDERS.id], b"key", b"x" * (LARGEST - 2))
    pumping.pump.send(pumping.tables[ORDERS.id], b"key", b"x" * (LARGEST - 3))

    assert (pumping.pump.rows, pumping.pump.origin.ordinal, len(pumping.sent)) == (2, 1, 2)


ROWS = st.tuples(st.sampled_from([b"1", b"-7", b"x", None, UNCHANGED]), st.sampled_from([b"", b"a", None, UNCHANGED]))
LSNS = st.integers(0, LARGEST_LSN).map(Lsn) | st.just(Lsn(LARGEST_LSN))
TIMES = st.integers(-LARGEST_TIME, LARGEST_TIME) | st.sampled_from([LARGEST_TIME, -LARGEST_TIME])
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Begin, LSNS, TIMES, st.integers(0, 2**32 - 1)),
    st.builds(Commit, LSNS, LSNS, TIMES),
    st.builds(Insert, st.just(ORDERS.id), ROWS),
    st.builds(Update, st.just(ORDERS.id), st.none(), st.none(), ROWS),
    st.builds(Update, st.just(ORDERS.id), ROWS, st.sampled_from(OldKind), ROWS),
    st.builds(Delete, st.just(ORDERS.id), ROWS, st.sampled_from(OldKind)),
    st.builds(Insert, st.just(EVENTS.id), st.tuples(st.sampled_from([b"1", b"9223372036854775808"]))),
    st.builds(LogicalMessage, st.booleans(), LSNS, st.just("prefix"), st.binary(max_size=3)),
    st.just(Truncate((ORDERS.id, EVENTS.id), cascade=True, restart_identity=False)),
)
WHOLE = st.builds(xlog, MESSAGES, st.integers(0, 2**64 - 1)) | st.builds(keepalive, st.integers(0, 2**64 - 1))


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """A frame; now and then a damaged one."""
    frame = bytearray(draw(WHOLE))
    if draw(st.integers(0, 2)) == 0:
        damage = draw(st.sampled_from(["cut", "byte", "more"]))
        place = draw(st.integers(0, len(frame) - 1))
        if damage == "cut":
            del frame[place:]
        elif damage == "byte":
            frame[place] = draw(st.integers(0, 255))
        else:
            frame += draw(st.binary(min_size=1, max_size=9))
    return bytes(frame)


def outcome(pumping: Pumping, messages: bytes) -> str:
    """What comes of the messages, the caller's part included."""
    try:
        left = pumping.pump.run(messages)
        if left is None:
            return "taken"
        found = decode_frame(left)
        if isinstance(found, XLogData):
            decode(found.payload)
    except (MalformedMessage, ValueNotCarried, KeyError) as error:
        return f"{type(error).__name__}: {error}"
    return "left"


@pytest.mark.skipif(len(PATHS) == 1, reason="the compiled kernel is not installed")
@given(st.lists(frames()), st.booleans())
@settings(max_examples=300)
def test_both_pumps_do_the_same_with_any_frames(received: list[bytes], stopped: bool) -> None:  # noqa: FBT001
    both = [Pumping(path, (ORDERS, EVENTS)) for path in PATHS]
    for each in both:
        each.tables[TableId(EVENTS.id)].errored = stopped

    for frame in received:
        reference, kernel = (outcome(each, messages_of(frame)) for each in both)
        assert kernel == reference
        assert _state(both[0]) == _state(both[1])


@pytest.mark.skipif(len(PATHS) == 1, reason="the compiled kernel is not installed")
@given(st.lists(frames(), max_size=8), st.integers(0, 300), st.binary(max_size=6))
def test_both_pumps_do_the_same_with_many_frames_at_once(received: list[bytes], cut: int, rest: bytes) -> None:
    both = [Pumping(path, (ORDERS, EVENTS)) for path in PATHS]
    messages = messages_of(*received)
    messages = messages[: len(messages) - cut] + rest

    reference, kernel = (outcome(each, messages) for each in both)

    assert kernel == reference
    assert _state(both[0]) == _state(both[1])


def _state(pumping: Pumping) -> tuple[object, ...]:
    pump = pumping.pump
    origin = pump.origin
    return (
        (origin.commit_lsn, origin.commit_ts, origin.xid, origin.ordinal, origin.snapshot),
        (pump.in_transaction, pump.safe, pump.rows, pump.used, pump.moved()),
        pumping.sent,
    )
