"""Where the objects of a change log lie: a folder (parquet_folder.py) or a bucket of S3 (parquet_s3.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, Protocol


class LogStore(Protocol):
    """Whole objects under names, `a/b/c`.

    What a call did is durable when it returns, and seen by every call that begins later, of any process. A call that
    fails raises a DestinationError with its solution. It may have done its work all the same: every call may be
    repeated. Several processes may use a store at once."""

    where: str
    """For people; nothing secret."""

    def open(self) -> None:
        """The first call. DestinationError: the place is not there, or does not keep these promises."""

    def put(self, name: str, write: Callable[[IO[bytes]], None]) -> None:
        """What is written becomes the object, instead of what was there. Nobody ever sees a part of it."""

    def create(self, name: str, content: bytes) -> bool:
        """A new object. False: there is one of this name, and it stays as it is; of all who try, one makes it."""

    def read(self, name: str) -> bytes:
        """An object that is there."""

    def last_number(self, folder: str) -> int:
        """The largest number that a name of `numbered` has in a folder, which has no others; 0: there is none."""


def numbered(folder: str, number: int) -> str:
    """Names in the order of their numbers."""
    return f"{folder}/{number:020}.json"
