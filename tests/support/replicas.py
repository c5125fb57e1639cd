"""What the topics of a pipeline make of its tables, by the rules of the protocol, row by row and without Spark: the
last copy of each table, and all changes after it that a checkpoint covers, in the order of their positions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from apply_spark.reshape import plain_default
from schemas.checkpoint import Checkpoint, CopyFinished, CopyStarted, SchemaChanged, TableErrored
from schemas.connections import KafkaConfig
from schemas.envelope import avro_name
from schemas.epochs import EpochRule
from schemas.identifiers import PipelineName, TableName
from schemas.lsn import Lsn
from schemas.table import TableSchema
from schemas.topics import Topics
from stores.kafka_log import KafkaLog
from stores.schema_topic import SchemaTopic
from tests.support.checkpoint_log import newest_log, windows
from tests.support.envelopes import Envelopes
from tests.support.shared_log import shared_log

Row = dict[str, Any]


class Replica:
    """One table."""

    def __init__(self, schema: TableSchema, generation: Lsn, last: Lsn) -> None:
        self.schema = schema
        self.generation = generation
        self.last = last
        """Its newest snapshot: before that, a copy that was resumed is of several moments."""
        self._keyed: dict[tuple[Any, ...], Row] = {}
        self._bag: Counter[tuple[Any, ...]] = Counter()

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted([*map(self._values, self._keyed.values()), *self._bag.elements()], key=repr)

    def add(self, row: Row) -> None:
        if self.schema.key:
            assert self.last > self.generation or self._key(row) not in self._keyed, "a row came twice"
            self._keyed[self._key(row)] = row
        else:
            self._bag[self._values(row)] += 1

    def take(self, change: Row) -> None:
        before, after = change["before"], change["after"]
        assert not change["unchanged"]
        if change["op"] == "t":
            self._keyed.clear()
            self._bag.clear()
        if change["op"] in "ud":
            self._remove(before or after)
        if after is not None:
            self.add(after)

    def alter(self, schema: TableSchema) -> None:
        assert schema.key == self.schema.key, "only what is not of the key is altered here"
        old = {column.number: avro_name(column.name) for column in self.schema.columns}
        self._keyed = {
            key: {
                avro_name(column.name): row[old[column.number]] if column.number in old else plain_default(column)
                for column in schema.columns
            }
            for key, row in self._keyed.items()
        }
        self.schema = schema

    def _remove(self, row: Row) -> None:
        if self.schema.key:
            gone = self._keyed.pop(self._key(row), None)
            assert gone is not None or self.last > self.generation, "a row that changed was not there"
        else:
            assert self._bag[self._values(row)] > 0, "a row that went was not there"
            self._bag[self._values(row)] -= 1

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[avro_name(column.name)] for column in self.schema.key)

    def _values(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[avro_name(column.name)] for column in self.schema.columns)


class _Event(NamedTuple):
    position: tuple[int, int]
    table: TableName
    happens: Callable[[Replica], None]


def replicas(
    kafka: KafkaConfig,
    pipeline: PipelineName,
    names: Iterable[TableName],
    target: Lsn,
    after_each: Callable[[Mapping[TableName, Replica], Lsn], None],
) -> dict[TableName, Replica] | None:
    """None until each table has a finished copy, and the log has come to `target`. `after_each`: after every
    transaction, given its commit LSN. A change that comes twice, or not at all, fails the test."""
    topics = Topics(pipeline)
    with shared_log(kafka) as log:
        schemas = SchemaTopic(kafka, log, topics.schemas)
        checkpoints = _last_log(log, topics.checkpoints)
        made = {name: _copied(log, topics, schemas, checkpoints, name) for name in names}
        found = {name: replica for name, replica in made.items() if replica is not None}
        if len(found) < len(made) or checkpoints[-1].lsn < target:
            return None
        events = [event for name in found for event in _events(log, topics, schemas, checkpoints, name)]
    for commit_lsn, transaction in groupby(sorted(events, key=lambda e: e.position), key=lambda e: e.position[0]):
        for event in transaction:
            if commit_lsn >= found[event.table].generation:
                event.happens(found[event.table])
        after_each(found, Lsn(commit_lsn))
    return found


def _last_log(log: KafkaLog, topic: str) -> list[Checkpoint]:
    """The checkpoints that count, of the newest log."""
    if topic not in log.topics():
        return []
    rule = EpochRule()
    read = [Checkpoint.decode(record.value) for record in log.read_all(topic) if record.value]
    return newest_log([checkpoint for checkpoint in read if rule.accepts(checkpoint)])


def _copied(
    log: KafkaLog, topics: Topics, schemas: SchemaTopic, checkpoints: list[Checkpoint], name: TableName
) -> Replica | None:
    """The last copy of a table; None while it is under way."""
    markers = [marker for checkpoint in checkpoints for marker in checkpoint.markers if marker.table == name]
    assert not any(isinstance(marker, TableErrored) for marker in markers), markers
    copies = [marker for marker in markers if not isinstance(marker, SchemaChanged) or marker.rewrite]
    if not copies or not isinstance(finished := copies[-1], CopyFinished):
        return None
    started = next(m for m in copies if isinstance(m, CopyStarted) and m.generation == finished.generation)
    schema = schemas.get(started.schema_id).table
    assert schema is not None
    replica, envelopes = Replica(schema, finished.generation, finished.last), Envelopes(schemas)
    for record in list(log.read(topics.copy(name, finished.generation), 0, finished.rows)):
        replica.add(envelopes.read(record.value)[1]["after"])
    return replica


def _events(
    log: KafkaLog, topics: Topics, schemas: SchemaTopic, checkpoints: list[Checkpoint], name: TableName
) -> Iterator[_Event]:
    """Changes and new shapes, each before the change at its position."""
    for checkpoint in checkpoints:
        for marker in checkpoint.markers:
            if isinstance(marker, SchemaChanged) and marker.table == name and not marker.rewrite:
                schema = schemas.get(marker.schema_id).table
                assert schema is not None
                yield _Event((marker.position.commit_lsn, marker.position.ordinal), name, _altering(schema))
    seen: set[tuple[int, int]] = set()
    envelopes, covered = Envelopes(schemas), windows(checkpoints)
    for record in list(log.read_all(topics.changes(name))):
        change = envelopes.read(record.value)[1]
        source = change["source"]
        position = source["commit_lsn"], source["ordinal"]
        start, end = covered.get(source["epoch"], (0, 0))
        if start <= position[0] < end:
            assert position not in seen, f"position {position} of {name} came twice"
            seen.add(position)
            yield _Event(position, name, _taking(change))
    counted = sum(m.rows for c in checkpoints for m in c.moved if m.topic == topics.changes(name))
    assert len(seen) == counted, f"checkpoints counted {counted} changes of {name}, its topic has {len(seen)}"


def _altering(schema: TableSchema) -> Callable[[Replica], None]:
    return lambda replica: replica.alter(schema)


def _taking(change: Row) -> Callable[[Replica], None]:
    return lambda replica: replica.take(change)
