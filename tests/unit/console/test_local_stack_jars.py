"""Only pinned bytes are used."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.local_stack import jars as jars_module
from console.local_stack.errors import ArtifactNotPinned, ChecksumMismatch
from console.local_stack.jars import jars, postgres_jar


def test_a_cached_jar_with_other_bytes_is_refused_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (artifact,) = jars_module._pinned("jdbc")
    jar = tmp_path / "penstock" / "jars" / "jdbc" / artifact.file_name
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"not the driver")

    with pytest.raises(ChecksumMismatch, match=artifact.sha256) as refused:
        jars("jdbc")

    assert str(jar) in refused.value.solution


def test_an_unknown_group_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(ArtifactNotPinned) as refused:
        jars("hudi")

    assert "kafka-broker" in refused.value.solution


def test_a_machine_without_pinned_postgres_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    monkeypatch.setattr("sys.platform", "darwin")

    with pytest.raises(ArtifactNotPinned, match="No Postgres binaries are pinned for darwin-arm64v8 machines") as told:
        postgres_jar(17)

    assert "PENSTOCK_STACK=docker" in told.value.solution


def test_an_unpinned_postgres_version_is_refused_and_the_pinned_ones_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("sys.platform", "linux")

    with pytest.raises(ArtifactNotPinned, match=r"Postgres 9 is not pinned .* 17\.11\.0"):
        postgres_jar(9)
