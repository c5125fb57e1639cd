r"""One row of COPY TO STDOUT in text format in, its column values out: unescaped bytes, or None for NULL.

Pure. What COPY FROM would read, this reads the same way: `\N`, the letters `b f n r t v`, one to three octal digits,
`x` with one or two hex digits; any other character after a backslash stands for itself, a tab included.
"""

from __future__ import annotations

import re

from schemas.errors import MalformedMessage

_NULL = rb"\N"
_END_OF_DATA = rb"\."
_FIELD = re.compile(rb"[^\t\\]*(?:\\.[^\t\\]*)*", re.DOTALL)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|(.))", re.DOTALL)
_LETTERS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def decode_copy_row(row: bytes, columns: int) -> tuple[bytes | None, ...]:
    """The values of `row`, which ends with its newline and has exactly `columns` of them."""
    end = len(row) - 1
    newline = row.find(b"\n")
    if newline != end or end < 0:
        raise MalformedMessage("A row of COPY must end with its only newline", offset=max(newline, 0))
    line = row[:end]
    values = _with_escapes(line) if b"\\" in line else tuple(line.split(b"\t"))
    if not line and columns == 0:
        return ()
    if len(values) != columns:
        raise MalformedMessage(f"A row of COPY has {len(values)} columns instead of {columns}", offset=end)
    return values


def _with_escapes(line: bytes) -> tuple[bytes | None, ...]:
    if line == _END_OF_DATA:
        raise MalformedMessage("The end of COPY stands where a row should be", offset=0)
    values: list[bytes | None] = []
    start = 0
    while True:
        end = _field_end(line, start)
        field = line[start:end]
        values.append(None if field == _NULL else _ESCAPE.sub(_unescape, field))
        if end == len(line):
            return tuple(values)
        start = end + 1


def _field_end(line: bytes, start: int) -> int:
    """Where the next tab stands that no backslash precedes, or the end of the line."""
    found = _FIELD.match(line, start)
    end = start if found is None else found.end()
    if line[end : end + 1] == b"\\":
        raise MalformedMessage("A row of COPY ends inside an escape", offset=end)
    return end


def _unescape(found: re.Match[bytes]) -> bytes:
    octal, hexadecimal, other = found.groups()
    if octal is not None:
        return bytes((int(octal, 8) & 0xFF,))
    if hexadecimal is not None:
        return bytes((int(hexadecimal, 16),))
    return _LETTERS.get(other, other)
