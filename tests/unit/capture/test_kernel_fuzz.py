from __future__ import annotations

import time

import pytest

from capture.transcode.choose import kernel_path
from tests.fuzz_kernel import fuzz

pytestmark = [
    pytest.mark.both_paths,
    pytest.mark.skipif(kernel_path() is None, reason="the compiled kernel is not installed"),
]


def test_damaged_input_is_never_read_past_its_end_and_never_written_otherwise_than_by_the_reference() -> None:
    seen = fuzz(executions=20_000, seed=time.time_ns())

    assert set(seen) == {
        *("record", "move", "rows", "taken", "left"),
        *("MalformedMessage", "ValueNotCarried", "KeyError"),
    }
