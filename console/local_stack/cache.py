"""One way to make a thing in the cache: under a lock, in a staging folder, renamed when it is whole.

A path that exists is therefore complete, however many processes asked for it and wherever one of them was killed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(target: Path) -> Iterator[None]:
    """Hold the lock that belongs to `target`; other processes and threads wait. Death releases it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    # The lock file is never removed: removing it would let two holders lock two different files of one name.
    with target.with_name(f".{target.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def staging(target: Path) -> Iterator[Path]:
    """A fresh folder beside `target`, gone at the end. Call inside `locked(target)`.

    What a killed process left behind is removed first; the lock says that nobody uses it."""
    for abandoned in target.parent.glob(f".{target.name}.staging-*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.staging-", dir=target.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def made_once(target: Path) -> Iterator[Path | None]:
    """Give a path to fill, or None where `target` exists already. The filled path becomes `target`.

    The body makes the path itself (a file or a folder); if it raises, nothing is kept."""
    if target.exists():
        yield None
        return
    with locked(target):
        if target.exists():
            yield None
            return
        with staging(target) as folder:
            unfinished = folder / target.name
            yield unfinished
            os.replace(unfinished, target)  # noqa: PTH105 - named for what it promises: atomic
