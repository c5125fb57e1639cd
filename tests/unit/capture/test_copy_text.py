from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture.transcode.copy_text import decode_copy_row
from schemas.errors import MalformedMessage

_SENT_AS = {8: b"\\b", 9: b"\\t", 10: b"\\n", 11: b"\\v", 12: b"\\f", 13: b"\\r", 92: b"\\\\"}


def _as_copy_sends(values: list[bytes | None]) -> bytes:
    """What COPY TO writes, by CopyAttributeOutText of the server."""
    fields = [
        rb"\N" if value is None else b"".join(_SENT_AS.get(byte, bytes((byte,))) for byte in value) for value in values
    ]
    return b"\t".join(fields) + b"\n"


@pytest.mark.parametrize(
    ("row", "values"),
    [
        (b"1\tanna\t\n", (b"1", b"anna", b"")),
        (b"1\t\\N\t\\\\N\n", (b"1", None, b"\\N")),
        (rb"\b\f\n\r\t\v\\" + b"\n", (b"\b\f\n\r\t\v\\",)),
        (rb"\101\7\0608\778" + b"\n", (b"A\x0708?8",)),
        (rb"\400\x41\x4g\xz" + b"\n", (b"\x00A\x04gxz",)),
        (rb"a\N\q\." + b"\n", (b"aNq.",)),
        (b"a\\\tb\tc\n", (b"a\tb", b"c")),
        ("čaj\t茶\n".encode(), ("čaj".encode(), "茶".encode())),
        (b"\n", (b"",)),
        (b"\n", ()),
    ],
)
def test_a_row_is_read_as_postgres_reads_it(row: bytes, values: tuple[bytes | None, ...]) -> None:
    assert decode_copy_row(row, len(values)) == values


@given(st.lists(st.none() | st.binary() | st.text(alphabet="\\N\t\n.x01").map(str.encode), min_size=1))
def test_every_row_that_copy_writes_is_read_back(values: list[bytes | None]) -> None:
    assert decode_copy_row(_as_copy_sends(values), len(values)) == tuple(values)


@pytest.mark.parametrize(
    ("row", "columns", "reason", "offset"),
    [
        (b"", 1, "newline", 0),
        (b"1\t2", 2, "newline", 0),
        (b"1\n2\n", 1, "newline", 1),
        (b"1\t2\n", 3, "2 columns instead of 3", 3),
        (b"1\t2\n", 1, "2 columns instead of 1", 3),
        (b"1\t\\N\n", 3, "2 columns instead of 3", 4),
        (b"1\n", 0, "1 columns instead of 0", 1),
        (b"1\tab\\\n", 2, "inside an escape", 4),
        (b"\\.\n", 1, "end of COPY", 0),
    ],
)
def test_what_is_not_a_row_is_refused_with_its_reason_and_offset(
    row: bytes, columns: int, reason: str, offset: int
) -> None:
    with pytest.raises(MalformedMessage, match=reason) as caught:
        decode_copy_row(row, columns)

    assert caught.value.offset == offset


@given(st.text(alphabet="\\\tNx1.\n").map(str.encode), st.integers(0, 4))
def test_any_bytes_are_either_a_row_or_malformed(row: bytes, columns: int) -> None:
    with suppress(MalformedMessage):
        assert len(decode_copy_row(row, columns)) == columns
