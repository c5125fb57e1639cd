"""What a release of penstock left behind: its topics byte by byte, its stores, a destination, and what they amount to.

`python -m tests.upgrade.make` makes one; every release adds one, and none is ever made again."""

from __future__ import annotations

import base64
import json
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

FOLDER = Path(__file__).parents[1] / "fixtures" / "releases"
RELEASES = sorted(FOLDER.glob("*.zip"))
STATE, LAKE, ABOUT, STORE, PROGRESS = "state.sqlite", "lake.duckdb", "about.json", "store.json", "progress.json"
_TOPICS = "topics/"

KeyAndValue: TypeAlias = tuple[bytes | None, bytes | None]


@dataclass(frozen=True)
class Release:
    """One archive."""

    path: Path

    def json(self, name: str) -> Any:  # noqa: ANN401 -- JSON
        with zipfile.ZipFile(self.path) as archive:
            return json.loads(archive.read(name))

    def file(self, name: str, folder: Path) -> Path:
        """A copy of a file of it, in this folder."""
        with zipfile.ZipFile(self.path) as archive:
            return Path(archive.extract(name, folder))

    def topics(self) -> dict[str, list[KeyAndValue]]:
        with zipfile.ZipFile(self.path) as archive:
            names = [name for name in archive.namelist() if name.startswith(_TOPICS)]
            return {name.removeprefix(_TOPICS): list(_records(archive.read(name))) for name in names}


def write_release(path: Path, files: dict[str, bytes], topics: dict[str, list[KeyAndValue]]) -> None:
    lines = {
        _TOPICS + topic: "\n".join(json.dumps([_text(key), _text(value)]) for key, value in records).encode()
        for topic, records in topics.items()
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        for name, content in sorted({**files, **lines}.items()):
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_LZMA)  # without the time of day


def _records(content: bytes) -> Iterable[KeyAndValue]:
    for line in content.splitlines():
        key, value = json.loads(line)
        yield _bytes(key), _bytes(value)


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
