"""A file that DuckDB writes: who may write to it, and waiting for programs that read it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import duckdb

from apply_spark.errors import DestinationInUse, DestinationLocked
from schemas.errors import DestinationError

_RETRY_SECONDS = 0.01


class LockFile:
    """A file beside the database, locked for as long as apply runs: the database itself is closed between batches."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._lock: int | None = None

    def hold(self) -> None:
        path = self._database.with_name(self._database.name + ".lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise DestinationInUse(f"Another apply writes to {self._database}.") from None
        self._lock = lock

    def let_go(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def opened_when_free(
    what: str, patience: timedelta, opened: Callable[[], duckdb.DuckDBPyConnection]
) -> duckdb.DuckDBPyConnection:
    """Tries until no other program holds the file. DuckDB's own message may hold a password."""
    deadline = time.monotonic() + patience.total_seconds()
    while True:
        try:
            return opened()
        except duckdb.Error as error:
            if not _is_held(error):
                raise DestinationError(
                    f"DuckDB cannot open {what}: {type(error).__name__}.",
                    solution="Check that it is a database of this version of DuckDB and that it may be written.",
                ) from None
            if time.monotonic() > deadline:
                seconds = patience.total_seconds()
                raise DestinationLocked(f"{what} has been held by another program for {seconds:.0f} s.") from None
            time.sleep(_RETRY_SECONDS)


def _is_held(error: duckdb.Error) -> bool:
    """Another process holds the file, or another part of this one has it open in another mode or attached."""
    text = str(error).lower()
    return any(phrase in text for phrase in ("could not set lock", "different configuration", "already attached"))
