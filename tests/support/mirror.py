"""What lies on the topics of one table, read by the rules of the protocol: a copy, and the changes after it."""

from __future__ import annotations

from typing import Any, NamedTuple

from schemas.checkpoint import Checkpoint, CopyFinished
from schemas.connections import KafkaConfig
from schemas.identifiers import LogId, PipelineName, TableName
from schemas.lsn import NOWHERE, Lsn
from schemas.topics import Topics
from stores.schema_topic import SchemaTopic
from tests.support.checkpoint_log import newest_log, windows
from tests.support.envelopes import Envelopes
from tests.support.shared_log import shared_log

Row = dict[str, Any]


class Mirror(NamedTuple):
    """The rows by their key, as a destination would have them, and the newest log, copy and checkpoint."""

    rows: dict[Any, Row]
    log_id: LogId
    generation: Lsn
    lsn: Lsn


def mirror(
    kafka: KafkaConfig,
    pipeline: PipelineName,
    checkpoints: list[Checkpoint],
    table: TableName,
    target: Lsn,
    key: str = "id",
) -> Mirror | None:
    """None until there is a finished copy, and a checkpoint at `target`. A position that comes twice in a window fails
    the test."""
    topics, checkpoints = Topics(pipeline), newest_log(checkpoints)
    copies = [m for c in checkpoints for m in c.markers if isinstance(m, CopyFinished) and m.table == table]
    if not copies or checkpoints[-1].lsn < target:
        return None
    covered = windows(checkpoints)
    with shared_log(kafka) as log:
        envelopes = Envelopes(SchemaTopic(kafka, log, topics.schemas))
        generation, resumed = copies[-1].generation, copies[-1].last > copies[-1].generation
        copied = [envelopes.read(record.value)[1] for record in list(log.read_all(topics.copy(table, generation)))]
        assert len(copied) >= copies[-1].rows if resumed else len(copied) == copies[-1].rows
        rows = {row["after"][key]: row["after"] for row in copied}
        assert resumed or len(rows) == len(copied), "a row was copied twice"
        changes: dict[tuple[int, int], Row] = {}
        counted = sum(m.rows for c in checkpoints for m in c.moved if m.topic == topics.changes(table))
        seen = 0
        for record in list(log.read_all(topics.changes(table))):
            _, change = envelopes.read(record.value)
            source = change["source"]
            start, end = covered.get(source["epoch"], (NOWHERE, NOWHERE))
            if not start <= source["commit_lsn"] < end:
                continue
            seen += 1
            position = (source["commit_lsn"], source["ordinal"])
            assert position not in changes, f"position {position} came twice"
            if source["commit_lsn"] >= generation:
                changes[position] = change
        assert seen == counted, f"checkpoints counted {counted} changes, the topic has {seen}"
        for _, change in sorted(changes.items()):
            if resumed and change["op"] == "d":
                rows.setdefault(change["before"][key], {})  # the copy may be newer than the delete
            _apply(rows, change, key)
        return Mirror(rows, checkpoints[-1].log_id, generation, checkpoints[-1].lsn)


def _apply(rows: dict[Any, Row], change: Row, key: str) -> None:
    match change["op"]:
        case "c" | "u":
            assert not change["unchanged"]
            rows[change["after"][key]] = change["after"]
        case "d":
            del rows[change["before"][key]]
        case "t":
            rows.clear()
