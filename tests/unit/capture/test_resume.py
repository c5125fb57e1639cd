"""A copy goes on only where that is exact, and then with the ranges that Kafka does not have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from capture.config import Origins
from capture.publication import PublishedTable
from capture.table_sync.copier import Copied
from capture.table_sync.ranges import CopyRange
from capture.table_sync.resume import Interrupted, remembered, why_begin_again
from schemas.identifiers import LogId, PipelineName, SchemaId
from schemas.lsn import Lsn
from schemas.table import ReplicaIdentity
from schemas.topics import Topics
from stores.state import FinishedRange, TableCopy
from tests.support.published import a_file, a_published_table

FIRST, SECOND = Lsn(100), Lsn(200)
SHAPE = SchemaId(7)
LOW, HIGH = a_file(9, name="low"), a_file(9, name="high")
PLAIN = a_published_table(LOW, HIGH)
RANGES = [CopyRange(0, LOW, 0, 4), CopyRange(1, LOW, 4, None), CopyRange(2, HIGH)]


def an_interrupted_copy(table: PublishedTable = PLAIN) -> Interrupted:
    """Of three ranges the first was finished under the first snapshot, and the last under the second."""
    copy = TableCopy(
        table=table.name,
        log_id=LogId("log"),
        generation=FIRST,
        schema_id=SHAPE,
        filenode="1:1",
        fingerprint=table.fingerprint,
        finished=False,
        rows=0,
        log_from=3,
        changes_from=4,
    )
    first, middle, last = remembered(table.name, FIRST, RANGES)
    return Interrupted(
        copy,
        (
            replace(first, finished=FinishedRange(FIRST, rows=10, bytes=1000, topic_end=12)),
            middle,
            replace(last, finished=FinishedRange(SECOND, rows=5, bytes=600, topic_end=20)),
        ),
        announced=True,
    )


def test_a_table_with_a_key_and_whole_changes_goes_on() -> None:
    assert why_begin_again(PLAIN, SHAPE, an_interrupted_copy()) is None


def test_identity_full_sends_values_that_are_stored_apart_so_the_copy_goes_on() -> None:
    table = a_published_table(LOW, HIGH, toastable=True, identity=ReplicaIdentity.FULL)

    assert why_begin_again(table, SHAPE, an_interrupted_copy()) is None


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (a_published_table(LOW, HIGH, key=False), "no key"),
        (a_published_table(LOW, HIGH, toastable=True), "TOASTed"),
        (a_published_table(LOW, HIGH, toastable=True, identity=ReplicaIdentity.INDEX), "TOASTed"),
        (a_published_table(LOW, HIGH, filenode="1:2"), "truncated or rewritten"),
        (a_published_table(LOW, HIGH, publish=(True, False, True, True)), "withholds"),
        (a_published_table(LOW, replace(HIGH, divisible=False)), "stay where they are"),
        (a_published_table(LOW), "file by file"),
        (a_published_table(), "file by file"),
    ],
)
def test_a_table_whose_rows_could_be_missed_or_told_in_part_begins_again(table: PublishedTable, reason: str) -> None:
    why = why_begin_again(table, SHAPE, an_interrupted_copy())

    assert why is not None
    assert reason in why


def test_another_shape_a_copy_that_nobody_heard_of_and_one_without_a_finished_range_begin_again() -> None:
    left = an_interrupted_copy()
    untouched = replace(left, ranges=tuple(replace(part, finished=None) for part in left.ranges))

    assert why_begin_again(PLAIN, SchemaId(8), left) == "the table has another shape"
    assert why_begin_again(PLAIN, SHAPE, replace(left, announced=False)) == "it ended before its first checkpoint"
    assert why_begin_again(PLAIN, SHAPE, untouched) == "no range of it was finished"


def test_a_stream_that_leaves_out_what_came_from_elsewhere_does_not_tell_of_every_row_that_moved() -> None:
    why = why_begin_again(PLAIN, SHAPE, an_interrupted_copy(), Origins.NONE)

    assert why == "the stream leaves out changes that came from elsewhere"


def test_the_division_is_the_remembered_one_however_the_files_have_grown_or_are_called_by_now() -> None:
    renamed = replace(a_file(99, name="high"), name=a_file(1, name="top").name)
    table = a_published_table(a_file(50, name="low"), renamed)

    left, done = an_interrupted_copy().divided(table)

    assert [(part.index, part.file, part.first, part.end) for part in left] == [(1, table.files[0], 4, None)]
    assert done == {
        CopyRange(0, table.files[0], 0, 4): Copied(10, 1000, final=True),
        CopyRange(2, renamed): Copied(5, 600, final=True),
    }


def test_a_copy_of_which_only_the_last_word_is_missing_ends_at_its_newest_snapshot() -> None:
    left = an_interrupted_copy()
    middle = replace(left.ranges[1], finished=FinishedRange(SECOND, rows=1, bytes=90, topic_end=19))

    whole = replace(left, ranges=(left.ranges[0], middle, left.ranges[2])).whole(Topics(PipelineName("shop")))

    assert (whole.generation, whole.last, whole.resumed) == (FIRST, SECOND, True)
    assert (whole.rows, whole.bytes) == (16, 1690)
    assert whole.fewest_records == 20, "the topic was this long when a range was finished"
