"""The frames of the walsender protocol, inside COPY BOTH: bytes in, values out, and the one frame we send.

Pure and bounds-checked like the decoder. Times are microseconds since 1970. A payload is a view of the bytes that came
in, not a copy: it lives as long as they do.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TypeAlias

from capture.pgoutput.decoder import LARGEST_LSN, POSTGRES_EPOCH
from schemas.errors import MalformedMessage
from schemas.lsn import Lsn

_XLOG_DATA = struct.Struct(">cQQq")
_KEEPALIVE = struct.Struct(">cQqB")
_STATUS_UPDATE = struct.Struct(">cQQQq?")
_LARGEST_BOOLEAN = 1


@dataclass(slots=True)
class XLogData:
    """One message of the plugin. `end` is the server's write position, not a position that may be acknowledged."""

    start: Lsn
    end: Lsn
    clock: int
    payload: memoryview


@dataclass(slots=True)
class Keepalive:
    """The server has sent everything below `end`. Received outside Begin..Commit, `end` may close a window."""

    end: Lsn
    clock: int
    reply_requested: bool


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    """What we tell the server. It may forget everything below `flushed`, for ever."""

    written: Lsn
    flushed: Lsn
    applied: Lsn
    clock: int
    reply_requested: bool = False


Frame: TypeAlias = XLogData | Keepalive


def decode_frame(data: memoryview | bytes) -> Frame:
    view = memoryview(data)
    if not view:
        raise MalformedMessage("The frame is empty", offset=0)
    match view[0]:
        case 0x77:  # w
            return _xlog_data(view)
        case 0x6B:  # k
            return _keepalive(view)
        case tag:
            raise MalformedMessage(f"No frame of a walsender has the tag {tag:#04x}", offset=0)


def encode_status_update(update: StatusUpdate) -> bytes:
    return _STATUS_UPDATE.pack(
        b"r",
        update.written,
        update.flushed,
        update.applied,
        update.clock - POSTGRES_EPOCH,
        update.reply_requested,
    )


def _xlog_data(view: memoryview) -> XLogData:
    if len(view) < _XLOG_DATA.size:
        raise MalformedMessage("The frame ends early", offset=len(view))
    _, start, end, clock = _XLOG_DATA.unpack_from(view)
    return XLogData(_lsn(start), Lsn(end), clock + POSTGRES_EPOCH, view[_XLOG_DATA.size :])


def _keepalive(view: memoryview) -> Keepalive:
    if len(view) < _KEEPALIVE.size:
        raise MalformedMessage("The frame ends early", offset=len(view))
    if len(view) > _KEEPALIVE.size:
        raise MalformedMessage(
            f"The frame is complete, but {len(view) - _KEEPALIVE.size} bytes are left over", offset=_KEEPALIVE.size
        )
    _, end, clock, reply = _KEEPALIVE.unpack(view)
    if reply > _LARGEST_BOOLEAN:
        raise MalformedMessage(f"A reply is either requested or not, but not {reply}", offset=_KEEPALIVE.size - 1)
    return Keepalive(_lsn(end), clock + POSTGRES_EPOCH, bool(reply))


def _lsn(value: int) -> Lsn:
    if value > LARGEST_LSN:
        raise MalformedMessage("No position in the log is so large", offset=1)
    return Lsn(value)
