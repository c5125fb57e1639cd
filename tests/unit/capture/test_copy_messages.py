"""Many rows of COPY in one call have the bytes that they have one by one, on both paths, wherever the bytes are cut."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture.transcode.choose import REFERENCE_PATH, Path, kernel_path
from capture.transcode.contract import Records, TableTranscoder
from capture.transcode.reference import Origin
from schemas.errors import MalformedMessage
from schemas.identifiers import Epoch, PipelineName, SchemaId
from tests.support.builders import a_column, a_table, copy_line

TABLES = [a_table(), a_table(a_column("note"), a_column("n", 23))]
NOW = 1_700_000_000_123_456_789
PATHS = [path for path in (REFERENCE_PATH, kernel_path()) if path is not None]
Make = Callable[[int], tuple[TableTranscoder, Records]]


@pytest.fixture(scope="module", params=PATHS, ids=["reference", "kernel"][: len(PATHS)])
def make(request: pytest.FixtureRequest) -> Make:
    def made(table: int) -> tuple[TableTranscoder, Records]:
        ids = (SchemaId(7), SchemaId(8) if TABLES[table].key else None)
        path: Path = request.param
        return path.transcoder(PipelineName("shop"), "d", TABLES[table], ids, Epoch(3), lambda: NOW), path.batch()

    return made


def an_origin(ordinal: int) -> Origin:
    return Origin(commit_lsn=1 << 40, commit_ts=NOW // 1000, xid=None, lsn=1 << 40, ordinal=ordinal, snapshot="true")


def copy_data(line: bytes) -> bytes:
    return b"d" + struct.pack("!I", len(line) + 4) + line


TEXTS = st.none() | st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=40).map(str.encode)
NUMBERS = st.integers(-(2**31), 2**31 - 1).map(lambda n: str(n).encode())
ORDINALS = st.sampled_from([0, 63, 64, 8191, (5 << 42) - 1, 5 << 42]) | st.integers(0, 2**62)


@given(
    st.lists(st.tuples(NUMBERS, TEXTS), max_size=20),
    ORDINALS,
    st.sampled_from([b"", b"c\0\0\0\4", b"d", b"d\0\0\1\0cut off"]),
)
@pytest.mark.parametrize("table", range(len(TABLES)))
def test_rows_in_one_call_are_the_rows_one_by_one(
    make: Make, table: int, rows: list[tuple[bytes, bytes | None]], ordinal: int, rest: bytes
) -> None:
    lines = [copy_line(row if table == 0 else row[::-1]) for row in rows]
    one_by_one = REFERENCE_PATH.transcoder(
        PipelineName("shop"), "d", TABLES[table], (SchemaId(7), SchemaId(8)), Epoch(3), lambda: NOW
    )
    expected = [one_by_one.copy_row(line, an_origin(ordinal + i)) for i, line in enumerate(lines)]
    if not TABLES[table].key:
        expected = [(None, value) for _, value in expected]
    together = b"".join(map(copy_data, lines))
    transcoder, found = make(table)
    origin = an_origin(ordinal)

    used = transcoder.copy_rows(memoryview(together + rest), origin, found)

    assert [(record["key"], record["value"]) for record in found.dicts] == expected
    assert (used, found.size) == (len(together), sum(len(value) for _, value in expected))
    assert origin.ordinal == ordinal + len(lines)


def test_a_call_that_is_refused_has_counted_the_rows_before(make: Make) -> None:
    origin = an_origin(5)
    transcoder, found = make(0)

    with pytest.raises(MalformedMessage):
        transcoder.copy_rows(copy_data(b"1\tx\n") + copy_data(b"1\n"), origin, found)

    assert len(found) == 1
    assert origin.ordinal == 6


def test_a_length_that_does_not_hold_itself_is_refused(make: Make) -> None:
    transcoder, found = make(0)

    with pytest.raises(MalformedMessage):
        transcoder.copy_rows(b"d\0\0\0\3abc", an_origin(0), found)
