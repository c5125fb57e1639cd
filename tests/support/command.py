"""The command `penstock`, as its users have it."""

from __future__ import annotations

import os
import subprocess
import sys


def penstock(*arguments: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    """The command as a user runs it."""
    return subprocess.run(
        [sys.executable, "-m", "console", *arguments],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env={**os.environ, "PENSTOCK_LOG_FORMAT": "json"},
    )
