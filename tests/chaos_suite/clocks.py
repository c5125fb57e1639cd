"""Wall clocks that jump, each that of one process and of those that it starts: `clock.c`, loaded into them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

_SOURCE = Path(__file__).with_name("clock.c")
_VARIABLE = "PENSTOCKS_CHAOS_CLOCK"


@dataclass(frozen=True)
class Library:
    """`clock.c`, compiled; or the reason why it cannot be had here."""

    path: Path
    why_not: str | None = None


class Clock:
    """Right until it jumps. Processes that were started with its `environment` go by it, already running ones too."""

    def __init__(self, library: Library, file: Path) -> None:
        self._library = library
        self._file = file
        self._microseconds = 0
        self.why_not = library.why_not
        self.set_right()
        file.chmod(0o644)  # the server's user reads it

    @property
    def environment(self) -> dict[str, str]:
        if self.why_not is not None:
            return {}
        return {"LD_PRELOAD": str(self._library.path), _VARIABLE: str(self._file)}

    def is_read_by(self, pid: int | None) -> bool:
        """Whether that process, if there is one, goes by it."""
        try:
            return str(self._file) in Path(f"/proc/{pid}/maps").read_text()
        except OSError:
            return False

    def jump(self, seconds: float) -> None:
        """From where it is now; back where they are negative."""
        self._move(self._microseconds + round(seconds * 1_000_000))

    def set_right(self) -> None:
        self._move(0)

    def _move(self, microseconds: int) -> None:
        """In one write and without a moment in which the file is empty: processes have it in their memory."""
        self._microseconds = microseconds
        opened = os.open(self._file, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(opened, microseconds.to_bytes(8, sys.byteorder, signed=True), 0)
        finally:
            os.close(opened)


def made_library(folder: Path) -> Library:
    """With the compiler that builds the kernel."""
    path = folder / "clock.so"
    if sys.platform != "linux":
        return Library(path, "only Linux loads a library into a process as this needs it")
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    try:
        command = [*shlex.split(compiler), "-O2", "-shared", "-fPIC", "-pthread", "-o", str(path), str(_SOURCE)]
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        return Library(path, f"there is no compiler: {compiler} is not found")
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.splitlines() if "error" in line]
        return Library(path, f"{_SOURCE.name} cannot be compiled: {'; '.join(lines[:2])}")
    path.chmod(0o755)
    return Library(path)
