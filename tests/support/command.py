"""The command `penstock`, as its users have it."""

from __future__ import annotations

import os
import subprocess
import tempfile

from tests.support.forked_stage import ran


def penstock(*arguments: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    """The command as a user runs it, to its end."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        code = ran(list(arguments), {**os.environ, "PENSTOCK_LOG_FORMAT": "json"}, output, errors, seconds)
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(arguments, code, output.read().decode(), errors.read().decode())
