"""What the local stack takes from the environment: the place of its cache, Ivy settings, Java, docker or not."""

from __future__ import annotations

import enum
import os
from pathlib import Path

from console.local_stack.errors import LocalStackError


class StackKind(enum.Enum):
    """Where the servers of a local stack run."""

    AUTO = "auto"
    DOCKER = "docker"
    NATIVE = "native"


def stack_kind() -> StackKind:
    """PENSTOCK_STACK; `auto` where it is not set."""
    wanted = os.environ.get("PENSTOCK_STACK", "").strip().lower() or StackKind.AUTO.value
    try:
        return StackKind(wanted)
    except ValueError:
        known = ", ".join(kind.value for kind in StackKind)
        raise LocalStackError(
            f"PENSTOCK_STACK is '{wanted}', which is none of: {known}.",
            solution="Set PENSTOCK_STACK to one of them, or unset it.",
        ) from None


def cache_dir() -> Path:
    """Where downloads and templates are kept: `$XDG_CACHE_HOME/penstock` or `~/.cache/penstock`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG rule: a relative path is invalid and is to be ignored.
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    return root / "penstock"


def ivy_settings() -> Path | None:
    """PENSTOCK_IVY_SETTINGS: the user's own ivysettings.xml, for mirrors and closed networks."""
    path = os.environ.get("PENSTOCK_IVY_SETTINGS", "")
    return Path(path).expanduser() if path else None


def java_home() -> Path | None:
    """JAVA_HOME, as the user set it."""
    path = os.environ.get("JAVA_HOME", "")
    return Path(path) if path else None
