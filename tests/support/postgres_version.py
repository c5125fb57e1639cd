"""The version of Postgres on which the tests run: `PENSTOCK_TEST_POSTGRES`, 17 unless it says otherwise."""

from __future__ import annotations

import os

import pytest

VERSION = int(os.environ.get("PENSTOCK_TEST_POSTGRES", "17"))


def since(version: int, what: str) -> pytest.MarkDecorator:
    """For a test of what older servers do not have."""
    return pytest.mark.skipif(version > VERSION, reason=f"{what} came with Postgres {version}; this is {VERSION}")
