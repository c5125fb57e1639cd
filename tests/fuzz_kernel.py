"""Mutates real frames, messages and COPY rows and gives them to the kernel.

`python -m tests.fuzz_kernel --executions 1000000`. Each input ends where a page ends that may be read; the next page
may not, so that one byte too many ends the process. Every outcome must be a record, None (a move), a frame taken or
left, or one of our errors; of every twentieth, the same as the reference's.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from capture.pgoutput.decoder import decode
from capture.pgoutput.messages import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    Message,
    OldKind,
    TupleData,
    Update,
)
from capture.pgoutput.stream import XLogData, decode_frame
from capture.transcode.choose import REFERENCE_PATH, kernel_path
from capture.transcode.reference import Origin, Record
from schemas.errors import PenstockError
from schemas.identifiers import TableId
from schemas.lsn import Lsn
from schemas.pg_types.registry import TYPES
from schemas.table import TableSchema
from tests.support.builders import a_column, a_table, copy_line, encode_message
from tests.support.stream_frames import Pumping, keepalive, messages_of, xlog

_PAGES = 4
_COMPARED = 20
_AT = Origin(commit_lsn=0x16_B374_D848, commit_ts=1_600_000_000_123_456, xid=753, lsn=0x16_B374_D000, ordinal=3)
_TABLE = TableId(16_384)
_VALUES: dict[int, tuple[bytes, ...]] = {
    16: (b"t", b"f"),
    17: (b"\\x", b"\\x00ff10"),
    20: (b"0", b"-9223372036854775808", b"9223372036854775807"),
    23: (b"7", b"-2147483648"),
    25: (b"", b"plain", "čaj 茶 \U0001f375".encode(), b"tab\tnewline\nback\\slash"),
    700: (b"1.5", b"NaN"),
    701: (b"-2.5e-03", b"Infinity", b"1.7976931348623157e+308"),
    1082: (b"2024-02-29", b"0044-03-15 BC", b"infinity"),
    1083: (b"24:00:00", b"12:34:56.789"),
    1114: (b"2024-02-29 12:34:56.789", b"4714-11-24 00:00:00 BC"),
    1184: (
        b"2024-02-29 12:34:56.789+05:30",
        b"-infinity",
        b"294246-12-31 23:59:59.999999+00",
        b"294276-12-31 23:59:59.999999+00",
    ),
    1700: (b"123.450", b"NaN"),
    1007: (b"{1,NULL,3}", b"{}", b"[0:1]={1,2}"),
    1020: (b"{(1,1),(0,0);(3,3),(2,2)}",),
    1009: (b'{"a b",c,"q\\"x"}', b"{{1},{2}}"),
}
_INTERESTING = b'\0\xff\x80\x7f\\\t\n.-+: BCNOKUIDtnub0x9eE{}",'

_BEGIN = Begin(Lsn(0x16_B374_D848), _AT.commit_ts, 753)
_COMMIT = Commit(_BEGIN.final_lsn, Lsn(0x16_B374_D878), _AT.commit_ts)

Call = Callable[[memoryview | bytes], str | Record | None]
Encode = Callable[[TupleData, TupleData], bytes]


@dataclass(frozen=True)
class Target:
    """One table, one entry of both paths, and how a row becomes its input."""

    table: TableSchema
    kernel: Call
    reference: Call
    encode: Encode

    def input(self, chance: random.Random) -> bytes:
        """Damaged bytes, or right bytes of a row with a damaged value."""
        old, new = _row(self.table, chance), _row(self.table, chance)
        if chance.random() < 0.5:
            return mutated(self.encode(old, new), chance)
        place = chance.randrange(len(new))
        value = new[place]
        if isinstance(value, bytes):
            new = (*new[:place], mutated(value, chance), *new[place + 1 :])
        return self.encode(old, new)


class GuardedMemory:
    """Pages that may be read, then one that may not."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, (_PAGES + 1) * mmap.PAGESIZE)
        self.size = _PAGES * mmap.PAGESIZE
        self._view = memoryview(self._map)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(address + self.size), ctypes.c_size_t(mmap.PAGESIZE), 0) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")

    def at_the_end(self, data: bytes) -> memoryview:
        start = self.size - len(data)
        self._view[start : self.size] = data
        return self._view[start : self.size]


def mutated(data: bytes, chance: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(out) + 1)
        match chance.randrange(7):
            case 0 if place < len(out):
                out[place] ^= 1 << chance.randrange(8)
            case 1 if place < len(out):
                out[place] = chance.choice(_INTERESTING)
            case 2:
                out.insert(place, chance.choice(_INTERESTING))
            case 3:
                del out[place : place + chance.randint(1, 4)]
            case 4:
                out[place:place] = out[place : place + chance.randint(1, 16)]
            case 5:
                del out[place:]
            case _ if place + 4 <= len(out):  # a length, perhaps
                out[place : place + 4] = chance.choice((1, 255, 65_536, 2**30 - 1, 2**31, 2**32 - 1)).to_bytes(4, "big")
    return bytes(out)


def targets() -> list[Target]:
    tables = [
        a_table(*(a_column(f"c{oid}", oid, key=oid in {20, 25}) for oid in _VALUES)),
        a_table(a_column("id", 20, key=True), a_column("at", 1184), a_column("note", 25)),
        a_table(*(a_column(f"c{oid}", oid) for oid in (1082, 1083, 1114, 700, 701, 17))),
        a_table(*(a_column(f"c{oid}", oid) for oid in TYPES if oid not in _VALUES and oid % 3 == 0)),
    ]
    return [target for table in tables for target in _targets_of(table)]


def _targets_of(table: TableSchema) -> list[Target]:
    compiled = kernel_path()
    if compiled is None:
        sys.exit("The compiled kernel is not installed: run `make build-kernel`.")
    kernel, reference = Pumping(compiled, (table,)), Pumping(REFERENCE_PATH, (table,))
    messages: list[Callable[[TupleData, TupleData], Message]] = [
        lambda _, new: Insert(_TABLE, new),
        lambda _, new: Update(_TABLE, None, None, new),
        lambda old, new: Update(_TABLE, old, OldKind.FULL, new),
        lambda _, new: Update(_TABLE, new, OldKind.FULL, new),
        lambda _, new: Update(_TABLE, new, OldKind.KEY, new),
        lambda old, _: Delete(_TABLE, old, OldKind.KEY),
    ]
    around: list[Encode] = [
        lambda *_: messages_of(xlog(_BEGIN), xlog(_COMMIT)),
        lambda *_: messages_of(keepalive(_COMMIT.end_lsn)),
    ]
    return [
        Target(table, entry(kernel), entry(reference), encode)
        for entry, inputs in (
            (_change, [_encoder(message) for message in messages]),
            (_pumped, [_framed(_encoder(message)) for message in messages] + around),
            (_copy_row, [lambda _, new: copy_line(new)]),
            (_copy_rows, [lambda old, new: messages_of(copy_line(old), copy_line(new))]),
        )
        for encode in inputs
    ]


def _change(pumping: Pumping) -> Call:
    return lambda data: pumping.tables[_TABLE].transcoder.change(data, _AT)


def _copy_row(pumping: Pumping) -> Call:
    return lambda data: pumping.tables[_TABLE].transcoder.copy_row(data, _AT)


def _copy_rows(pumping: Pumping) -> Call:
    def call(messages: memoryview | bytes) -> str:
        rows = pumping.path.batch()
        used = pumping.tables[_TABLE].transcoder.copy_rows(messages, replace(_AT), rows)
        return f"rows: {used} {rows.dicts}"

    return call


def _pumped(pumping: Pumping) -> Call:
    """Messages in a transaction that has just begun; a frame that is left is decoded, as its caller does."""
    begin = messages_of(xlog(_BEGIN))

    def call(messages: memoryview | bytes) -> str:
        pumping.sent.clear()
        pumping.pump.reset()
        pumping.pump.run(begin)
        left = pumping.pump.run(messages)
        if left is not None:
            found = decode_frame(left)
            if isinstance(found, XLogData):
                decode(found.payload)
        return f"{'taken' if left is None else 'left'}: {pumping.pump.used} {pumping.sent}"

    return call


def _encoder(message: Callable[[TupleData, TupleData], Message]) -> Encode:
    return lambda old, new: encode_message(message(old, new))


def _framed(encode: Encode) -> Encode:
    return lambda old, new: messages_of(xlog(encode(old, new)), xlog(encode(new, old)))


def _row(table: TableSchema, chance: random.Random) -> TupleData:
    return tuple(
        chance.choice((None, UNCHANGED))
        if chance.random() < 0.1
        else chance.choice(_VALUES.get(column.type_oid, (b"{}",) if TYPES[column.type_oid].element else (b"7",)))
        for column in table.columns
    )


def outcome(call: Call, data: memoryview | bytes) -> str | Record | None:
    try:
        return call(data)
    except (PenstockError, KeyError) as error:  # a table that the stream has not met is a KeyError
        return f"{type(error).__name__}: {error}"


def fuzz(executions: int, seed: int) -> Counter[str]:
    """How often each kind of outcome was seen; AssertionError where the paths differ."""
    chance = random.Random(seed)  # noqa: S311 -- it must repeat
    all_targets, memory, seen = targets(), GuardedMemory(), Counter[str]()
    for execution in range(executions):
        target = chance.choice(all_targets)
        data = target.input(chance)
        got = outcome(target.kernel, memory.at_the_end(data))
        seen[got.partition(":")[0] if isinstance(got, str) else "record" if got else "move"] += 1
        if execution % _COMPARED == 0 and got != outcome(target.reference, data):
            raise AssertionError(f"The paths differ: seed {seed}, execution {execution}, input {data.hex()}")
    return seen


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--executions", type=int, default=1_000_000)
    arguments.add_argument("--seed", type=int, default=time.time_ns())
    options = arguments.parse_args()
    started = time.monotonic()
    seen = fuzz(options.executions, options.seed)
    seconds = time.monotonic() - started
    print(f"{options.executions:,} executions in {seconds:.0f} s, seed {options.seed}: {dict(seen)}")  # noqa: T201


if __name__ == "__main__":
    main()
