"""Producers that nobody uses any more."""

from __future__ import annotations

import gc
import sys

import pytest

from capture.transcode.choose import REFERENCE_PATH, Path, kernel_path

PATHS = [path for path in (REFERENCE_PATH, kernel_path()) if path is not None]

pytestmark = pytest.mark.both_paths


@pytest.mark.parametrize("path", PATHS, ids=["reference", "kernel"][: len(PATHS)])
def test_a_producer_that_is_found_by_the_garbage_collector_ends_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by chaos: an epoch that failed held one in its traceback, and its topics were gone before it."""
    ignored: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    batch = path.batch()
    batch.add(None, b"value")
    sender = path.sender({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    sender.send("t", batch)
    sender.purge()
    traceback: list[object] = [sender]
    traceback.append(traceback)

    del sender, traceback
    gc.collect()

    assert not ignored
