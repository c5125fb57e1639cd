"""What capture wrote, read without apply: the markers of a table, and its rows, folded from copy and changes."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from console.local_stack.postgres import LocalPostgres
from schemas.checkpoint import CopyFinished, CopyStarted, Marker, SchemaChanged, TableRemoved
from schemas.envelope import avro_name
from schemas.identifiers import SchemaId, TableName
from schemas.lsn import Lsn
from schemas.table import TableSchema
from schemas.topics import Topics
from stores.kafka_errors import TopicMissing
from stores.kafka_log import KafkaLog
from stores.schema_topic import SchemaTopic
from tests.support.envelopes import Envelopes
from tests.support.eventually import eventually
from tests.support.pipeline import Brokers, Pipeline
from tests.support.shared_log import shared_log

Row: TypeAlias = dict[str, Any]
MakeCaptured: TypeAlias = Callable[..., tuple[Pipeline, "Captured"]]

NOTICED = 10.0
"""Seconds within which a change of the publication is noticed."""
VIA_ROOT = "with (publish_via_partition_root)"


class _Change(NamedTuple):
    schema: TableSchema
    envelope: Row

    @property
    def position(self) -> tuple[int, int]:
        return self.envelope["source"]["commit_lsn"], self.envelope["source"]["ordinal"]

    @property
    def key(self) -> tuple[Any, ...]:
        return tuple(self.envelope["after"][avro_name(column.name)] for column in self.schema.key)


class Captured:
    """The log of one pipeline."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._kafka = pipeline.config().kafka
        self._topics = Topics(pipeline.config().pipeline)

    def markers(self, table: str) -> list[Marker]:
        checkpoints = self._pipeline.checkpoints()
        return [marker for each in checkpoints for marker in each.markers if marker.table == _name(table)]

    def generations(self, table: str) -> list[Lsn]:
        return [marker.generation for marker in self.markers(table) if isinstance(marker, CopyStarted)]

    def is_removed(self, table: str) -> bool:
        return any(isinstance(marker, TableRemoved) for marker in self.markers(table)[-1:])

    def rows(self, table: str) -> list[tuple[Any, ...]] | None:
        """As a destination would have them now; None while there is no finished copy, or where the table left."""
        started: CopyStarted | None = None
        finished = resumed = False
        shape = SchemaId(0)
        for marker in self.markers(table):
            match marker:
                case CopyStarted():
                    started, finished, shape = marker, False, marker.schema_id
                case CopyFinished(generation=generation, last=last):
                    finished = started is not None and started.generation == generation
                    resumed = last > generation
                case SchemaChanged(schema_id=followed, rewrite=False):
                    shape = followed
                case TableRemoved():
                    started = None
                case _:
                    finished = False
        if started is None or not finished:
            return None
        with shared_log(self._kafka) as log:
            copied = list(self._changes(log, self._topics.copy(_name(table), started.generation)))
            if resumed:
                copied = list({each.key: each for each in copied}.values())
            changes = {each.position: each for each in self._changes(log, self._topics.changes(_name(table)))}
            later = [changes[at] for at in sorted(changes) if at[0] >= started.generation]
            columns = [avro_name(column.name) for column in self._schema(log, shape).columns]
            return sorted(
                (tuple(row.get(column) for column in columns) for row in _folded([*copied, *later], upserts=resumed)),
                key=repr,
            )

    def columns(self, table: str) -> list[str]:
        """Of the newest copy."""
        return [column.name for column in self._copied(table).columns]

    def key(self, table: str) -> list[str]:
        """Of the newest copy."""
        return [column.name for column in self._copied(table).key]

    def _copied(self, table: str) -> TableSchema:
        started = [marker for marker in self.markers(table) if isinstance(marker, CopyStarted)][-1]
        with shared_log(self._kafka) as log:
            return self._schema(log, started.schema_id)

    def table_topics(self) -> set[str]:
        """The tables that have a topic of changes."""
        with shared_log(self._kafka) as log:
            tables = [self._topics.table_of_changes(topic) for topic in log.topics()]
        return {str(table) for table in tables if table is not None}

    def assert_rows(self, table: str, query: str | None = None, *, seconds: float = 60.0) -> None:
        """All that is committed now arrives, and then the topics make what the source answers to `query`."""
        self.assert_reached(seconds=seconds)
        eventually(lambda: self._is_equal(table, query or f"select * from {table}"), seconds=seconds, what="equality")

    def assert_reached(self, *, seconds: float = 60.0) -> None:
        """All that is committed now arrives."""
        target = self._pipeline.wal_lsn()

        def reached() -> bool:
            self._pipeline.check_capture()
            return self._pipeline.checkpoint_lsn() >= target

        eventually(reached, seconds=seconds, what="a checkpoint")

    def _is_equal(self, table: str, query: str) -> bool:
        rows = self.rows(table)
        return rows == sorted(self._pipeline.source.execute(query.encode()).fetchall(), key=repr)

    def _changes(self, log: KafkaLog, topic: str) -> Iterator[_Change]:
        try:
            records = list(log.read_all(topic))  # the log has one consumer, which the schemas need as well
        except TopicMissing:
            return
        envelopes = Envelopes(SchemaTopic(self._kafka, log, self._topics.schemas))
        for record in records:
            yield _Change(*envelopes.read(record.value))

    def _schema(self, log: KafkaLog, schema: SchemaId) -> TableSchema:
        table = SchemaTopic(self._kafka, log, self._topics.schemas).get(schema).table
        assert table is not None
        return table


def _name(table: str) -> TableName:
    schema, _, name = table.rpartition(".")
    return TableName(schema or "public", name)


def _folded(changes: list[_Change], *, upserts: bool) -> list[Row]:
    """Row by row, in order: slow and plain. `upserts`: what is created may be there, from a copy that is newer."""
    rows: list[Row] = []
    gone: Row = {}
    for schema, envelope in changes:
        key = [avro_name(column.name) for column in schema.key]
        before, after = envelope["before"], envelope["after"]
        if envelope["op"] == "t":
            rows.clear()
        if envelope["op"] in ("d", "u") or (upserts and envelope["op"] == "c"):
            old = before if before is not None and envelope["op"] != "c" else after
            at = next(
                (
                    at
                    for at, row in enumerate(rows)
                    if (all(row[name] == old[name] for name in key) if key else row == old)
                ),
                None,
            )
            gone = rows.pop(at) if at is not None else {}
        if after is not None:
            rows.append({**after, **{name: gone[name] for name in envelope["unchanged"]}})
    return rows


def captures(stack: ExitStack, postgres: LocalPostgres, kafka: Brokers, folder: Path) -> MakeCaptured:
    """Statements and the tail of `create publication`, if the test makes one, in; a running capture out.

    `source`: further lines of that section; `toml`: further sections. `stack` ends what was started."""

    def made(
        *statements: str, publish: str | None, source: str = "", toml: str = "", **environment: str
    ) -> tuple[Pipeline, Captured]:
        name = f"t{secrets.token_hex(4)}"
        mine = folder / name
        mine.mkdir()
        pipeline = stack.enter_context(Pipeline(name, postgres, kafka, None, mine, toml))
        pipeline.sql(*statements)
        pipeline.file.write_text(pipeline.file.read_text().replace("[source]", f"[source]\n{source}"))
        if publish is not None:
            pipeline.sql(f'create publication "{name}" {publish}')
        pipeline.start_capture(**environment)
        return pipeline, Captured(pipeline)

    return made


def publish(pipeline: Pipeline, change: str) -> None:
    pipeline.sql(f'alter publication "{pipeline.name}" {change}')


def reasons(pipeline: Pipeline, table: str) -> list[str]:
    """Why capture made copies of a table, as it logged it."""
    logs = sorted(pipeline.folder.glob("capture*.log"))
    lines = [line for log in logs for line in log.read_text().splitlines() if '"table needs a copy"' in line]
    entries = [json.loads(line) for line in lines]
    return [entry["reason"] for entry in entries if entry["table"] == str(_name(table))]


def next_generation(log: Captured, table: str, after: int) -> None:
    eventually(lambda: len(log.generations(table)) > after, seconds=NOTICED, what=f"another copy of {table}")


def a_partitioned_table(*further: str) -> list[str]:
    """`t`, with partitions on two levels."""
    return [
        "create table t (id int primary key, a text) partition by range (id)",
        "create table t_a partition of t for values from (0) to (100)",
        "create table t_b partition of t for values from (100) to (200) partition by range (id)",
        "create table t_b1 partition of t_b for values from (100) to (150)",
        "create table t_b2 partition of t_b for values from (150) to (200)",
        "insert into t select i, 'copied' from generate_series(0, 199, 10) i",
        *further,
    ]
