"""A change log on a disk, or on what is mounted as one and has hard links."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from apply_spark.errors import DestinationAway
from schemas.failpoints import failpoint


class LogFolder:
    """A LogStore: each object a file, under its name once it is whole and on the disk."""

    def __init__(self, root: Path) -> None:
        self.where = str(root)
        self._root = root
        self._suffix = f".{secrets.token_hex(8)}"

    def open(self) -> None:
        with _told(self._root):
            self._root.mkdir(parents=True, exist_ok=True)

    def put(self, name: str, write: Callable[[IO[bytes]], None]) -> None:
        target = self._root / name
        with _told(target):
            written = self._written(target, write)
            failpoint("parquet.renaming", OSError)
            written.replace(target)
            _sync_folder(target.parent)

    def create(self, name: str, content: bytes) -> bool:
        target = self._root / name
        with _told(target):
            written = self._written(target, lambda file: _write_all(file, content))
            try:
                os.link(written, target)
            except FileExistsError:
                return False
            finally:
                written.unlink()
            _sync_folder(target.parent)
            return True

    def read(self, name: str) -> bytes:
        with _told(self._root / name):
            return (self._root / name).read_bytes()

    def last_number(self, folder: str) -> int:
        with _told(self._root / folder):
            return max((int(each.stem) for each in (self._root / folder).glob("*.json")), default=0)

    def _written(self, target: Path, write: Callable[[IO[bytes]], None]) -> Path:
        """Beside its target, under a name that no reader looks at."""
        target.parent.mkdir(parents=True, exist_ok=True)
        written = target.with_suffix(self._suffix)
        with written.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        return written


def _write_all(file: IO[bytes], content: bytes) -> None:
    file.write(content)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DestinationAway(
            f"{path} cannot be read or written ({type(error).__name__}).",
            solution="Check the path, and that the disk is there, has room and may be written by apply; then start "
            "apply again.",
        ) from error


def _sync_folder(folder: Path) -> None:
    """Names in it survive a loss of power from here on."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
