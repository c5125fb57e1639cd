"""Jars come from the network once, are checked, and are refused where they are not what was pinned."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import console
from console.local_stack.environment import cache_dir
from console.local_stack.errors import ChecksumMismatch, DownloadFailed
from console.local_stack.jars import jars
from console.local_stack.spark import spark_runtime

REPOSITORY = Path(console.__file__).parents[1]


class TestJars:
    """The user's own ivysettings.xml leads Ivy to a folder instead of the network."""

    @pytest.fixture
    def mirror(self, driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """An empty mirror, the settings that lead to it, and an empty cache; the driver comes from the real one."""
        assert driver.exists()
        folder = tmp_path / "mirror"
        folder.mkdir()
        settings = tmp_path / "ivysettings.xml"
        settings.write_text(f"""
<ivysettings><settings defaultResolver="mirror"/><resolvers>
  <filesystem name="mirror"><artifact pattern="{folder}/[artifact]-[revision].[ext]"/></filesystem>
</resolvers></ivysettings>""")
        monkeypatch.setenv("PENSTOCK_IVY_SETTINGS", str(settings))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        return folder

    @pytest.fixture
    def driver(self) -> Path:
        return jars("jdbc")[0]

    def test_two_processes_at_once_fetch_a_group_once(self, driver: Path, mirror: Path) -> None:
        shutil.copy(driver, mirror)
        script = "from console.local_stack.jars import jars; [print(path) for path in jars('jdbc')]"

        both = [
            subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
            for _ in range(2)
        ]
        said = [process.communicate(timeout=60)[0] for process in both]

        assert [process.returncode for process in both] == [0, 0]
        assert "".join(said).count("jars downloading") == 1
        assert [text.splitlines()[-1] for text in said] == [str(cache_dir() / "jars" / "jdbc" / driver.name)] * 2

    def test_a_jar_that_nobody_serves_is_an_error_with_its_name(self, mirror: Path) -> None:
        with pytest.raises(DownloadFailed, match=r"'jdbc'.*postgresql") as failed:
            jars("jdbc")

        assert "PENSTOCK_IVY_SETTINGS" in failed.value.solution
        assert list(mirror.iterdir()) == []

    def test_a_mirror_that_serves_other_bytes_is_refused_and_nothing_is_kept(self, driver: Path, mirror: Path) -> None:
        (mirror / driver.name).write_bytes(driver.read_bytes() + b"\0")

        with pytest.raises(ChecksumMismatch, match="is pinned"):
            jars("jdbc")

        assert list((cache_dir() / "jars" / "jdbc").iterdir()) == []


def test_spark_maps_the_archive_of_its_classes(spark: SparkSession) -> None:
    options = spark_runtime().java_options
    jvm = spark.sparkContext._jvm
    assert jvm is not None

    process = jvm.java.lang.ProcessHandle.current().pid()

    archive = shlex.split(options)[0].removeprefix("-XX:SharedArchiveFile=")
    assert archive in Path(f"/proc/{process}/maps").read_text()
