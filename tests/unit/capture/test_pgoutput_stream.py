from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture.pgoutput.stream import Keepalive, StatusUpdate, XLogData, decode_frame, encode_status_update
from schemas.errors import MalformedMessage
from schemas.lsn import Lsn

XLOG_HEAD = b"w" + bytes.fromhex("00000016b374d848 00000016b374d878 0000000000000001")
KEEPALIVE = b"k" + bytes.fromhex("00000016b374d878 0000000000000001 01")
START, END = Lsn.parse("16/B374D848"), Lsn.parse("16/B374D878")
CLOCK = 946_684_800_000_001


def test_xlog_data_is_decoded_and_its_payload_is_a_view_of_what_came() -> None:
    source = bytearray(XLOG_HEAD + b"I...")

    frame = decode_frame(memoryview(source))
    source[-1] = ord("!")

    assert isinstance(frame, XLogData)
    assert (frame.start, frame.end, frame.clock) == (START, END, CLOCK)
    assert bytes(frame.payload) == b"I..!"


@pytest.mark.parametrize(("reply", "requested"), [(b"\0", False), (b"\1", True)])
def test_a_keepalive_is_decoded(reply: bytes, requested: bool) -> None:  # noqa: FBT001 -- a parameter of the test
    assert decode_frame(KEEPALIVE[:-1] + reply) == Keepalive(END, CLOCK, requested)


def test_every_truncated_head_of_a_frame_is_refused() -> None:
    for frame in (XLOG_HEAD, KEEPALIVE):
        for length in range(len(frame)):
            with pytest.raises(MalformedMessage) as caught:
                decode_frame(frame[:length])
            assert caught.value.offset == length


@pytest.mark.parametrize(
    ("frame", "offset"),
    [
        (KEEPALIVE + b"\0", 18),
        (KEEPALIVE[:-1] + b"\2", 17),
        (b"k\x80" + KEEPALIVE[2:], 1),
        (b"w\x80" + XLOG_HEAD[2:], 1),
        (b"z", 0),
        (b"r" + bytes(33), 0),
    ],
)
def test_what_is_not_a_frame_of_the_server_is_refused_with_its_offset(frame: bytes, offset: int) -> None:
    with pytest.raises(MalformedMessage) as caught:
        decode_frame(frame)

    assert caught.value.offset == offset


def test_a_status_update_is_encoded_as_the_server_reads_it() -> None:
    update = StatusUpdate(written=Lsn(3), flushed=Lsn(2), applied=Lsn(1), clock=CLOCK, reply_requested=True)

    assert encode_status_update(update) == b"r" + bytes.fromhex(
        "0000000000000003 0000000000000002 0000000000000001 0000000000000001 01"
    )


@given(st.builds(bytes.__add__, st.sampled_from([b"w", b"k", b""]), st.binary()))
def test_any_bytes_are_either_a_frame_or_malformed(data: bytes) -> None:
    with suppress(MalformedMessage):
        decode_frame(data)
