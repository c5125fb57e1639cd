"""The right Java is found, and Spark can start it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from console.local_stack import java
from console.local_stack.errors import JavaNotFound


def a_java(home: Path, version: str) -> Path:
    """A program that says of itself what a Java of that version says."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        f'#!/bin/sh\n{{ echo "    java.home = {home}"; echo "    java.specification.version = {version}"; }} >&2\n'
    )
    executable.chmod(0o755)
    return executable


def test_the_first_supported_java_is_taken(tmp_path: Path) -> None:
    old, good, other = (
        a_java(tmp_path / name, version) for name, version in [("old", "11"), ("good", "21"), ("other", "17")]
    )

    found = java._find_java((tmp_path / "missing", old, good, other))

    assert (found.home, found.version, found.executable) == (tmp_path / "good", 21, good)


def test_without_a_supported_java_the_error_says_what_was_seen(tmp_path: Path) -> None:
    too_new = a_java(tmp_path / "new", "25")

    with pytest.raises(JavaNotFound, match=rf"{too_new} \(Java 25\)"):
        java._find_java((too_new,))


def test_the_shim_drops_only_the_module_that_the_runtime_lacks(tmp_path: Path) -> None:
    real = tmp_path / "real java"
    real.write_text('#!/bin/sh\nfor argument in "$@"; do echo "<$argument>"; done\n')
    real.chmod(0o755)
    shim = tmp_path / "shim"
    shim.write_text(java._shim_script(real))
    shim.chmod(0o755)

    said = subprocess.run(
        [shim, "-Xmx1g", "--add-modules=jdk.incubator.vector", "-Dname=two words", "", "*"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert said.stdout.splitlines() == ["<-Xmx1g>", "<-Dname=two words>", "<>", "<*>"]
