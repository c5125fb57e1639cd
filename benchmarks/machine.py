"""Where and with what a run was made."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.measurement import Machine

_PACKAGES = ("penstock", "psycopg", "confluent-kafka", "pyspark", "duckdb", "pyarrow", "fastavro", "Cython")


def machine() -> Machine:
    return Machine(
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        system=f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        load_at_start=os.getloadavg(),
    )


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """The commit that is measured; `-changed` where the tree differs from it."""
    name = _git("rev-parse", "--short=12", "HEAD") or "unknown"
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ":!docs", ":!benchmarks/results")
    return f"{name}-changed" if changed else name


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
