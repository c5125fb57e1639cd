"""How much of a copy is done, how long the rest will take, and what Kafka must have at its end."""

from __future__ import annotations

from typing import cast

from capture.table_sync.copier import Copied, TableJob
from capture.table_sync.copies import Round, TableCopying
from capture.table_sync.ranges import CopyRange
from capture.table_sync.snapshot import HeldSnapshot
from schemas.identifiers import SchemaId
from schemas.lsn import Lsn
from tests.support.published import a_file, a_published_table

FIRST = Lsn(100)
FILE = a_file(99)
"""With one block of benefit of the doubt, a hundred."""


def a_copy(*done: CopyRange, left: list[CopyRange], snapshot: Lsn = FIRST) -> TableCopying:
    job = TableJob(a_published_table(FILE), (SchemaId(1), None), "", snapshot, FIRST, "t")
    rounds = Round(cast("HeldSnapshot", None), 1)
    return TableCopying(
        job,
        rounds,
        left,
        done={part: Copied(10, 1000, final=True) for part in done},
        earlier_rows=10 * len(done),
        topic_from=13 * len(done),
        began=0.0,
    )


def finish(copy: TableCopying, part: CopyRange) -> None:
    copy.waiting.remove(part)
    copy.done[part] = Copied(10, 1000, final=True)


def test_the_time_left_is_as_long_as_the_same_share_took_before() -> None:
    first, second = CopyRange(0, FILE, 0, 24), CopyRange(1, FILE, 24, None)
    copy = a_copy(left=[first, second])
    assert copy.seconds_left(30.0) is None

    finish(copy, first)

    assert copy.share == 0.25
    left = copy.seconds_left(30.0)
    assert left is not None
    assert 90 <= left <= 100


def test_what_was_done_before_an_interruption_says_nothing_of_the_pace() -> None:
    parts = [CopyRange(0, FILE, 0, 49), CopyRange(1, FILE, 49, 74), CopyRange(2, FILE, 74, None)]
    copy = a_copy(parts[0], left=parts[1:], snapshot=Lsn(200))
    assert copy.seconds_left(10.0) is None

    finish(copy, parts[1])

    assert (copy.share, copy.seconds_left(10.0)) == (0.75, 10.0)


def test_a_resumed_copy_must_make_its_topic_longer_by_what_it_read_itself() -> None:
    parts = [CopyRange(0, FILE, 0, 49), CopyRange(1, FILE, 49, None)]
    copy = a_copy(parts[0], left=parts[1:], snapshot=Lsn(200))

    finish(copy, parts[1])

    whole = copy.whole()
    assert (whole.rows, whole.fewest_records, whole.resumed) == (20, 13 + 10, True)
