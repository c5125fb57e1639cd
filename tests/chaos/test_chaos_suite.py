"""A short run of the chaos suite; `make chaos MINUTES=60` is a long one. PENSTOCK_TEST_SEED repeats a run's choices."""

from __future__ import annotations

import os
import secrets

import pytest

from tests.chaos_suite.run import run_chaos
from tests.chaos_suite.workload import is_whole

MINUTES = 0.5


@pytest.mark.further
@pytest.mark.timeout(600)
def test_nothing_that_is_promised_breaks_under_random_faults() -> None:
    seed = int(os.environ.get("PENSTOCK_TEST_SEED", secrets.randbits(32)))

    result = run_chaos(seed, MINUTES)

    assert not result.failed, result.table()


def test_a_transfer_that_is_seen_in_halves_is_noticed() -> None:
    assert is_whole(99_995, 100_005, 5)
    assert is_whole(100_000, 100_000, None)
    assert not is_whole(99_995, 100_000, 5)
    assert not is_whole(99_995, 100_005, 4)
    assert not is_whole(99_990, 100_005, 5)
