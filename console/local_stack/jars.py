"""Names of groups in, paths of jars out. A path that is returned holds exactly the bytes that artifacts.json pins.

The download is done by the Ivy that pyspark ships, through its default resolver or the user's ivysettings.xml, so no
address of any host stands in this code.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

import structlog

from console.local_stack.cache import locked, staging
from console.local_stack.environment import cache_dir, ivy_settings
from console.local_stack.errors import ArtifactNotPinned, ChecksumMismatch, DownloadFailed
from console.local_stack.java import find_java

_DOWNLOAD_SECONDS = 1800
_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64v8", "arm64": "arm64v8"}

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Artifact:
    """One pinned jar, or an archive that a project publishes in the same place."""

    org: str
    name: str
    rev: str
    sha256: str
    bytes: int
    classifier: str = ""
    """Which of several files of one revision: `all`, `plugin`."""
    ext: str = "jar"

    @property
    def file_name(self) -> str:
        """The name under which it lies in the cache."""
        return f"{'-'.join(part for part in (self.name, self.rev, self.classifier) if part)}.{self.ext}"


def jars(group: str) -> list[Path]:
    """Every jar of a group, downloaded where needed; the SHA-256 of each is checked at every call.

    Groups: kafka-broker, spark-kafka-avro, delta, iceberg, jdbc; for tests alone apicurio, kafka-connect,
    connect-plugins and connect-source-plugins. For Postgres see `postgres_jar`."""
    if group.startswith("postgres-"):
        raise ValueError(f"{group} holds one jar a version: call postgres_jar(version)")
    return _fetched(group, _pinned(group))


def postgres_jar(version: int) -> Path:
    """The jar with the Postgres binaries of one major version for this machine; no other version is downloaded."""
    group = f"postgres-{_machine()}"
    versions = _pinned(group)
    wanted = [artifact for artifact in versions if artifact.rev.split(".", maxsplit=1)[0] == str(version)]
    if not wanted:
        known = ", ".join(artifact.rev for artifact in versions)
        raise ArtifactNotPinned(
            f"Postgres {version} is not pinned for this machine; there are: {known}.",
            solution="Choose one of these versions.",
        )
    return _fetched(group, wanted)[0]


@functools.cache
def _artifacts() -> dict[str, tuple[Artifact, ...]]:
    text = files("console.local_stack").joinpath("artifacts.json").read_text(encoding="utf-8")
    return {group: tuple(Artifact(**entry) for entry in entries) for group, entries in json.loads(text).items()}


def _pinned(group: str) -> tuple[Artifact, ...]:
    artifacts = _artifacts()
    if group in artifacts:
        return artifacts[group]
    if group.startswith("postgres-"):
        machine = group.removeprefix("postgres-")
        raise ArtifactNotPinned(f"No Postgres binaries are pinned for {machine} machines.")
    raise ArtifactNotPinned(
        f"There is no group of jars '{group}'.", solution=f"Choose one of: {', '.join(sorted(artifacts))}."
    )


def _machine() -> str:
    architecture = platform.machine().lower()
    return f"{sys.platform}-{_ARCHITECTURES.get(architecture, architecture)}"


def _fetched(group: str, artifacts: Sequence[Artifact]) -> list[Path]:
    folder = cache_dir() / "jars" / group
    paths = [folder / artifact.file_name for artifact in artifacts]
    if not all(path.exists() for path in paths):
        with locked(folder):
            folder.mkdir(exist_ok=True)
            missing = [artifact for artifact in artifacts if not (folder / artifact.file_name).exists()]
            if missing:
                _download(group, missing, folder)
    for artifact, path in zip(artifacts, paths, strict=True):
        _check(artifact, path, solution=f"Remove {path} and start again; it is then downloaded anew.")
    return paths


def _download(group: str, artifacts: Sequence[Artifact], folder: Path) -> None:
    size = sum(artifact.bytes for artifact in artifacts)
    log.info("jars downloading", group=group, jar_count=len(artifacts), byte_count=size)
    with staging(folder) as scratch:
        # Ivy keeps one revision of a module in one call and evicts the others, so nobody may ask for two.
        output = _run_ivy(group, artifacts, scratch)
        for artifact in artifacts:
            brought = scratch / "jars" / artifact.file_name
            if not brought.exists():
                raise DownloadFailed(f"{artifact.file_name} of group '{group}' was not brought by Ivy: {output}")
            _check(artifact, brought, solution="The repository or mirror serves another file: use one that you trust.")
        for artifact in artifacts:
            os.replace(scratch / "jars" / artifact.file_name, folder / artifact.file_name)  # noqa: PTH105 - atomic
    log.info("jars downloaded", group=group, jar_count=len(artifacts), byte_count=size)


def _run_ivy(group: str, artifacts: Sequence[Artifact], scratch: Path) -> str:
    """Let Ivy bring the jars to `scratch/jars`; return what it said last."""
    ivy_file = scratch / "ivy.xml"
    ivy_file.write_text(_ivy_xml(artifacts), encoding="utf-8")
    settings = ivy_settings()
    command = [
        str(find_java().executable),
        "-XX:TieredStopAtLevel=1",
        *("-cp", _ivy_jar(), "org.apache.ivy.Main"),
        *(("-settings", str(settings)) if settings is not None else ()),
        *("-ivy", str(ivy_file), "-cache", str(scratch / "ivy-cache"), "-warn"),
        *("-retrieve", f"{scratch}/jars/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, check=False, cwd=scratch
        )
    except subprocess.TimeoutExpired as error:
        raise DownloadFailed(f"Ivy did not bring group '{group}' within {_DOWNLOAD_SECONDS} s.") from error
    said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    output = " | ".join(said[-4:])
    if done.returncode != 0:
        raise DownloadFailed(f"Ivy could not bring group '{group}' (exit code {done.returncode}): {output}")
    return output


def _ivy_xml(artifacts: Sequence[Artifact]) -> str:
    # Not transitive: artifacts.json is the whole truth, and some poms name jars that nobody serves.
    dependencies = "\n".join(
        f"    <dependency org={quoteattr(artifact.org)} name={quoteattr(artifact.name)} rev={quoteattr(artifact.rev)}"
        f' transitive="false" conf="default->default">{_ivy_file(artifact)}</dependency>'
        for artifact in artifacts
    )
    return f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="penstock" module="local-stack"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""


def _ivy_file(artifact: Artifact) -> str:
    if artifact.ext == "jar":
        return ""
    classifier = f" m:classifier={quoteattr(artifact.classifier)}" if artifact.classifier else ""
    named = f"name={quoteattr(artifact.name)} type={quoteattr(artifact.ext)} ext={quoteattr(artifact.ext)}"
    return f"<artifact {named}{classifier}/>"


def _ivy_jar() -> str:
    spec = find_spec("pyspark")  # found, not imported: importing pyspark takes a second
    folders = [] if spec is None or spec.submodule_search_locations is None else spec.submodule_search_locations
    for folder in folders:
        for jar in sorted(Path(folder, "jars").glob("ivy-*.jar")):
            return str(jar)
    raise DownloadFailed(
        "pyspark, whose Ivy fetches the jars, is not installed or holds no Ivy.",
        solution="Run `pip install --force-reinstall pyspark==4.1.1`.",
    )


def _check(artifact: Artifact, path: Path, *, solution: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != artifact.sha256:
        raise ChecksumMismatch(f"{path} has SHA-256 {found}, but {artifact.sha256} is pinned.", solution=solution)
