"""The wall clock, as one process sees it. Linux has one for all, so a library that moves it is loaded into the process:
libfaketime, where it is installed, or where FAKETIME_LIBRARY names it."""

from __future__ import annotations

import os
from pathlib import Path

_USUAL = "*/faketime/libfaketimeMT.so.1"


class WallClock:
    """Clocks that measure how much time has passed go on as they are."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        named = os.environ.get("FAKETIME_LIBRARY")
        self._library = Path(named) if named else next(Path("/usr/lib").glob(_USUAL), None)
        self.put(0)

    @property
    def can_be_moved(self) -> bool:
        return self._library is not None

    def environment(self) -> dict[str, str]:
        """Of a process that sees it."""
        if self._library is None:
            return {}
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",  # as older versions call it
        }

    def put(self, seconds: int) -> None:
        """So far from the time of this machine, noticed within a second."""
        unfinished = self._file.with_suffix(".new")
        unfinished.write_text(f"{seconds:+d}\n")
        unfinished.replace(self._file)
