"""What belongs to a change log, as numbered files: each names the files of one batch, of all tables, and the progress.

The file of a number can be made once, whole, so it is both what makes a batch visible and the compare-and-set of the
log: whoever does not make the next file has been replaced.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from apply_spark.errors import DestinationTaken


class Manifests:
    """The files of one destination, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def newest(self) -> tuple[int, dict[str, Any] | None]:
        """With its number."""
        self._folder.mkdir(parents=True, exist_ok=True)
        numbers = [int(each.stem) for each in self._folder.glob("*.json")]
        if not numbers:
            return 0, None
        found: dict[str, Any] = json.loads(self._path(max(numbers)).read_text())
        return max(numbers), found

    def add(self, number: int, manifest: dict[str, Any]) -> None:
        """DestinationTaken: somebody else made that file."""
        target = self._path(number)
        written = target.with_suffix(f".{manifest['owner']}")
        with written.open("w") as file:
            json.dump(manifest, file)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(written, target)
        except FileExistsError:
            raise DestinationTaken(f"Another apply has written to {self._folder}.") from None
        finally:
            written.unlink()
        sync_folder(self._folder)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:020}.json"


def sync_folder(folder: Path) -> None:
    """Names in it survive a loss of power from here on."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
