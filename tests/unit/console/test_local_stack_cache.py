"""A path in the cache exists only when it is whole."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from console.local_stack.cache import made_once


def test_a_thing_is_made_once_even_when_many_ask_at_the_same_time(tmp_path: Path) -> None:
    target = tmp_path / "thing"

    def ask() -> bool:
        with made_once(target) as unfinished:
            if unfinished is not None:
                unfinished.write_text("whole")
            return unfinished is not None

    with ThreadPoolExecutor(8) as pool:
        makers = list(pool.map(lambda _: ask(), range(8)))

    assert makers.count(True) == 1
    assert target.read_text() == "whole"


def test_a_failed_making_leaves_nothing_and_the_next_one_starts_anew(tmp_path: Path) -> None:
    target = tmp_path / "thing"

    def fail() -> None:
        with made_once(target) as unfinished:
            assert unfinished is not None
            unfinished.write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == [".thing.lock"]

    with made_once(target) as unfinished:
        assert unfinished is not None
        unfinished.write_text("whole")

    assert target.read_text() == "whole"


def test_what_a_killed_maker_left_behind_is_removed(tmp_path: Path) -> None:
    abandoned = tmp_path / ".thing.staging-abc"
    abandoned.mkdir()

    with made_once(tmp_path / "thing") as unfinished:
        assert unfinished is not None
        unfinished.mkdir()

    assert not abandoned.exists()
    assert (tmp_path / "thing").is_dir()
