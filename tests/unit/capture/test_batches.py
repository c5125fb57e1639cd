"""Batches one after the other: each holds its own records, and the memory of one serves the next."""

from __future__ import annotations

import tracemalloc

import pytest

from capture.transcode.choose import REFERENCE_PATH, Path, kernel_path

PATHS = [path for path in (REFERENCE_PATH, kernel_path()) if path is not None]
ROW = b"r" * 1000
ROWS = 500

pytestmark = pytest.mark.both_paths


@pytest.fixture(params=PATHS, ids=["reference", "kernel"][: len(PATHS)])
def path(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


def test_a_batch_that_follows_another_holds_its_own_records_only(path: Path) -> None:
    first = path.batch()
    first.add(b"old", b"old value")
    del first

    next_one, beside = path.batch(), path.batch()
    next_one.add(None, b"new value")
    beside.add(b"key", b"other")

    assert next_one.dicts == [{"key": None, "value": b"new value"}]
    assert beside.dicts == [{"key": b"key", "value": b"other"}]
    assert (len(next_one), next_one.size) == (1, len(b"new value"))


def test_memory_does_not_grow_with_the_number_of_batches(path: Path) -> None:
    tracemalloc.start()
    try:
        for _ in range(20):
            batch = path.batch()
            for _ in range(ROWS):
                batch.add(None, ROW)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert most < 6 * ROWS * len(ROW)  # two batches, and what a growing one leaves behind


def test_what_one_large_record_took_is_given_back(path: Path) -> None:
    tracemalloc.start()
    try:
        batch = path.batch()
        batch.add(None, ROW * 20_000)
        del batch
        left = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert left < 5_000_000
