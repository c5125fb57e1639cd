"""What belongs to a change log, as numbered objects: each names the files of one batch, of all tables, and has the
progress.

The object of a number can be made once, whole, so it is both what makes a batch visible and the compare-and-set of the
log: whoever does not make the next one has been replaced.
"""

from __future__ import annotations

import json
from typing import Any

from apply_spark.destinations.parquet_store import LogStore, numbered
from apply_spark.errors import DestinationTaken


class Manifests:
    """Those of one destination, in a folder of its store."""

    def __init__(self, store: LogStore, folder: str) -> None:
        self._store = store
        self._folder = folder

    def newest(self) -> tuple[int, dict[str, Any] | None]:
        """With its number."""
        number = self._store.last_number(self._folder)
        if number == 0:
            return 0, None
        found: dict[str, Any] = json.loads(self._store.read(numbered(self._folder, number)))
        return number, found

    def add(self, number: int, manifest: dict[str, Any]) -> None:
        """DestinationTaken: somebody else made that one. The owner in it tells ours from all others: ours may be there
        before we know, where an answer was lost and the store's client asked again."""
        name, content = numbered(self._folder, number), json.dumps(manifest).encode()
        if not self._store.create(name, content) and self._store.read(name) != content:
            raise DestinationTaken(f"Another apply has written to {self._store.where} ({self._folder}).")
