"""Postgres refuses to run as root. Who runs it then, and which folders that user can reach."""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path

from console.local_stack.environment import cache_dir
from console.local_stack.errors import CannotRunAsRoot

_USER = "nobody"
# Where root keeps what other users must read, when its own cache lies behind a closed home.
_SHARED_CACHE = Path("/var/cache/penstock")


def server_user() -> tuple[int, int] | None:
    """The (uid, gid) under which a server must run; None where it may run as ourselves."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(_USER)
    except KeyError:
        raise CannotRunAsRoot(
            f"Postgres refuses to run as root, and this machine has no user '{_USER}'.",
            solution="Start penstock as an ordinary user.",
        ) from None
    return entry.pw_uid, entry.pw_gid


def readable_cache() -> Path:
    """The cache, or where the server's user cannot reach it, one that it can."""
    cache = cache_dir()
    if server_user() is None or closed_parent(cache) is None:
        return cache
    try:
        (_SHARED_CACHE / "postgres").mkdir(parents=True, exist_ok=True)
        for folder in (_SHARED_CACHE, _SHARED_CACHE / "postgres"):
            folder.chmod(0o755)  # whatever our umask says
    except OSError as error:
        raise CannotRunAsRoot(
            f"The server's user cannot reach {cache}, and {_SHARED_CACHE} cannot be made: {error}",
            solution="Set XDG_CACHE_HOME to a folder through which every user may pass.",
        ) from error
    return _SHARED_CACHE


def closed_parent(path: Path) -> Path | None:
    """The first folder on the way to `path` through which not everybody may go. What does not exist is open."""
    absolute = path.absolute()
    for folder in [*reversed(absolute.parents), absolute]:
        if folder.exists() and not folder.stat().st_mode & 0o001:
            return folder
    return None


def give_away(directory: Path, user: tuple[int, int] | None) -> None:
    """Make the server's user the owner of a folder and all in it, closed to others; check that it can be reached."""
    directory.chmod(0o700)
    if user is None:
        return
    closed = closed_parent(directory.absolute().parent)
    if closed is not None:
        raise CannotRunAsRoot(
            f"Postgres runs as '{_USER}' because it refuses root, and that user cannot pass through {closed}.",
            solution=f"Choose another folder, run `chmod o+x {closed}`, or start penstock as an ordinary user.",
        )
    shutil.chown(directory, *user)
    for folder, names, files in os.walk(directory):
        for name in [*names, *files]:
            os.chown(Path(folder, name), *user, follow_symlinks=False)
