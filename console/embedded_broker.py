"""The broker that `penstock run` brings where the configuration names none, and the note that tells its address."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_OWNER_ONLY = 0o700


@contextmanager
def embedded_broker(note: Path) -> Iterator[str]:
    """Run a broker whose data stays beside the note; yield its address. The note is there while the broker is."""
    from console.local_stack.kafka import LocalKafka  # noqa: PLC0415 -- only where a broker is wanted

    note.parent.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
    with LocalKafka(note.parent / "kafka") as kafka:
        unfinished = note.with_suffix(".unfinished")
        unfinished.write_text(json.dumps({"bootstrap_servers": kafka.bootstrap_servers, "owner": os.getpid()}))
        unfinished.replace(note)
        try:
            yield kafka.bootstrap_servers
        finally:
            note.unlink(missing_ok=True)


def running_broker(note: Path) -> str | None:
    """The address that the note tells, if whoever wrote it still lives."""
    try:
        found = json.loads(note.read_text(encoding="utf-8"))
        os.kill(found["owner"], 0)
    except (FileNotFoundError, ProcessLookupError):
        return None
    except PermissionError:
        pass  # it lives, and belongs to another user
    return str(found["bootstrap_servers"])
