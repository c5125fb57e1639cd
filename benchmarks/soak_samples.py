"""What may grow while a pipeline runs, looked at from outside: memory, descriptors, threads, files, topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.pipeline import Pipeline
from benchmarks.processes import descendants
from console.local_stack.kafka import LocalKafka

_PROC = Path("/proc")


def sample(pipeline: Pipeline, kafka: LocalKafka, scratch: Path) -> dict[str, int]:
    """One look, in bytes and numbers. What is not there yet counts as nothing."""
    apply = pipeline.pid("apply")
    jvm = next((pid for pid in descendants(apply) if _name(pid) == "java"), None)
    queries = list(scratch.glob("penstock-query-*"))
    topics = pipeline.topics
    small = {"checkpoints": topics.checkpoints, "feedback": topics.feedback, "schemas": topics.schemas}
    return {
        **_process("capture", pipeline.pid("capture")),
        **_process("apply python", apply),
        **_process("spark jvm", jvm),
        "query folder, bytes": _bytes(queries),
        "other scratch files, bytes": _bytes([scratch]) - _bytes(queries),
        "state store, bytes": _bytes(pipeline.folder.rglob("*.sqlite*")),
        "duckdb file, bytes": _bytes(pipeline.folder.glob("*.duckdb*")),
        **{f"topic {name}, bytes": _topic(kafka, topic) for name, topic in small.items()},
        "topic control, bytes": _topic(kafka, topics.control),
        "topic of changes, bytes": _topic(kafka, pipeline.change_topic("orders")),
    }


def _process(name: str, pid: int | None) -> Mapping[str, int]:
    if pid is None:
        return {}
    status = dict(line.split(":", 1) for line in (_PROC / str(pid) / "status").read_text().splitlines())
    return {
        f"{name}, resident bytes": int(status["VmRSS"].split()[0]) * 1024,
        f"{name}, descriptors": len(list((_PROC / str(pid) / "fd").iterdir())),
        f"{name}, threads": int(status["Threads"]),
    }


def _name(pid: int) -> str:
    try:
        return (_PROC / str(pid) / "comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _topic(kafka: LocalKafka, topic: str) -> int:
    """Its records; indexes have their size before they have entries."""
    return _bytes((kafka.directory / "data" / f"{topic}-0").glob("*.log"))


def _bytes(paths: Iterable[Path]) -> int:
    """Of files, and of all that is in folders. What goes while we look is gone."""
    total = 0
    for path in paths:
        try:
            total += _bytes(path.iterdir()) if path.is_dir() else path.stat().st_size
        except FileNotFoundError:
            continue
    return total
