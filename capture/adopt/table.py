"""One of Debezium's topics: its records, in their order, become changes of its table in the open window.

c, r       a create, which is an upsert to whoever applies it: a connector that starts again sends some again
u          an update; placeholders of TOASTed values become columns that were not sent
d, then c  with the headers of a changed key: a move, whose halves stand side by side
t          a truncate
tombstone  behind its delete, nothing; without it, which compaction took, that delete
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import structlog
from confluent_kafka import Message

from capture.adopt.debezium import CONFLUENT, DebeziumSchemas, NotAdopted, Reading, Row, followed, table_id
from capture.adopt.window import Window
from capture.checkpoints import LogPlace
from capture.registrar import Registrar
from capture.transcode.reference import Origin, Transcoder
from schemas.checkpoint import CopyFinished, CopyStarted, SchemaChanged, TableErrored
from schemas.envelope import CONNECTOR, Op
from schemas.errors import PenstockError
from schemas.evolution import changes
from schemas.identifiers import Epoch, PipelineName, SchemaId, TableName
from schemas.table import Column, TableSchema
from schemas.wire import schema_id_of
from stores.schema_topic import SchemaTopic

_OPS = {"c": Op.CREATE, "r": Op.CREATE, "u": Op.UPDATE, "d": Op.DELETE, "t": Op.TRUNCATE}
_NEW_KEY, _OLD_KEY = "__debezium.newkey", "__debezium.oldkey"
_IDS = {"apicurio.value.contentId", "apicurio.value.globalId"}
"""Headers. The bytes below them may look as if they began with an id."""
_LATE = "If it lost its offsets, and rows may be gone since: have it write the table to a new topic, with a snapshot."
_ANEW = "A table that was stopped begins anew, at the beginning of its topic, with the next start of adopt."

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Shared:
    """What all topics of an epoch work with."""

    pipeline: PipelineName
    epoch: Epoch
    theirs: DebeziumSchemas
    placeholders: tuple[object, ...]
    schemas: SchemaTopic
    registrar: Registrar
    window: Window
    topic_of: dict[TableName, str] = field(default_factory=dict)
    """A table is on one topic: nobody knows the order of changes on two."""


@dataclass(frozen=True)
class _Shape:
    """How records of one of Debezium's schemas are read, and how they are written."""

    written_as: SchemaId
    reading: Reading
    schema: TableSchema
    topic: str
    transcoder: Transcoder


@dataclass(frozen=True)
class _HalfMove:
    """The delete of a changed key, which waits for its create."""

    offset: int
    key: Row
    origin: Origin


class _Tombstone(NamedTuple):
    """A record without a value: its row is gone."""

    offset: int
    key: bytes
    moment: int
    """When Kafka took it, in microseconds."""


class AdoptedTable:
    """A topic from `next` on. NotAdopted and ValueNotCarried end it: `stop` then says so in the log."""

    def __init__(self, shared: Shared, topic: str, start: int, *, begun: bool) -> None:
        self._shared = shared
        self.topic = topic
        self.next = start
        self.begun = begun
        """Whether the log tells of the table."""
        self.stopped = False
        self.name: TableName | None = None
        self._shape: _Shape | None = None
        self._half: _HalfMove | None = None
        self._copied = True
        """Whether the record before was of a snapshot; of the first one nobody asks."""
        self._deleted: bytes | None = None
        """The key of the record before, if that was a delete: its tombstone comes next."""
        self._buried: list[_Tombstone] = []
        """Those without a delete, which wait for the first record that tells the shape."""
        if begun:
            self._remember_name()

    def _remember_name(self) -> None:
        """From the topic's own name, as Debezium gives it: the first record may come late, or not be readable."""
        for table in self._shared.schemas.tables():
            if self.is_of(table):
                self.name = table
                self._shared.topic_of[table] = self.topic

    @property
    def read_to(self) -> int:
        """Where another epoch has to go on."""
        waiting = [tombstone.offset for tombstone in self._buried]
        if self._half is not None:
            waiting.append(self._half.offset)
        return min(waiting, default=self.next)

    def is_of(self, table: TableName) -> bool:
        """By its records; before the first, by the name that Debezium gives a topic."""
        return self.name == table if self.name is not None else self.topic.endswith(f".{table}")

    def take(self, message: Message, place: LogPlace) -> None:
        """The record at `next`, or after it where compaction left a hole. `place`: the log's, before this window."""
        offset = message.offset()
        assert offset is not None  # noqa: S101 -- a delivered message has one
        self.next = offset + 1
        key, value = _bytes(message.key()), _bytes(message.value())
        if value is None:
            if key is not None and key != self._deleted and self.begun:
                self._bury(_Tombstone(offset, key, message.timestamp()[1] * 1000))
            return
        headers = {header[0] for header in message.headers() or ()}
        if not headers.isdisjoint(_IDS):
            raise NotAdopted("A record has the id of its schema in its headers, not in its bytes.", solution=CONFLUENT)
        envelope = self._shared.theirs.decoded(value)
        op = _operation(envelope, key)
        self._notice_snapshot(envelope)
        values = self._shared.theirs.decoded(key) if key is not None else {}
        if self._shape is None or schema_id_of(value) != self._shape.written_as:
            self._take_on(value, envelope, values, place)
        if self._shape is None:
            return  # a truncate before any row
        self._change(op, envelope, values, headers, offset)
        self._deleted = key if op is Op.DELETE else None

    def _notice_snapshot(self, envelope: Mapping[str, Any]) -> None:
        """A connector that forgot how far it was copies the table once more. What was deleted meanwhile it never tells,
        and a snapshot that somebody asked for may have some rows only: so nothing is emptied for it."""
        told = str(envelope["source"].get("snapshot"))
        copied = envelope["op"] == "r" and told != "incremental"
        if self.begun and copied and (told.startswith("first") or not self._copied):
            log.warning(
                "connector copies anew, rows that were deleted meanwhile stay", topic=self.topic, solution=_LATE
            )
        self._copied = copied

    def _bury(self, tombstone: _Tombstone) -> None:
        """Compaction took the delete before it, and this is the only word of it."""
        self._buried.append(tombstone)
        if self._shape is not None:
            self._end_half()
            self._delete_buried(self._shape.reading)

    def _delete_buried(self, reading: Reading) -> None:
        for _, key, moment in self._buried:
            row = reading.key_row(self._shared.theirs.decoded(key))
            self._write(Op.DELETE, row, None, Origin(0, moment, None, 0, 0))
        self._buried.clear()

    def _change(
        self, op: Op, envelope: Mapping[str, Any], key: Mapping[str, Any], headers: set[str], offset: int
    ) -> None:
        assert self._shape is not None  # noqa: S101 -- looked at before
        reading, origin = self._shape.reading, _origin(envelope["source"])
        moved_from = self._half.key if self._half is not None and op is Op.CREATE and _OLD_KEY in headers else None
        self._end_half()
        match op:
            case Op.DELETE if _NEW_KEY in headers:
                self._half = _HalfMove(offset, reading.key_row(key), origin)
            case Op.DELETE:
                self._write(op, reading.key_row(key), None, origin)
            case Op.TRUNCATE:
                self._write(op, None, None, origin)
            case _:
                self._write(op, moved_from, reading.row(envelope["after"], self._shared.placeholders), origin)

    def _end_half(self) -> None:
        """With its create, which comes next in the same window; or without, if the connector died between the two: it
        sends both again then."""
        if self._half is not None:
            half, self._half = self._half, None
            self._write(Op.DELETE, half.key, None, half.origin)

    def _write(self, op: Op, before: Row | None, after: Row | None, origin: Origin) -> None:
        assert self._shape is not None  # noqa: S101 -- looked at before
        self._shared.window.write(self._shape.topic, self._shape.transcoder, op, before, after, origin)

    # Shapes.

    def _take_on(self, value: bytes, envelope: Mapping[str, Any], key: Collection[str], place: LogPlace) -> None:
        """Another of Debezium's schemas: the table is new, or has another shape, or only its schema other words."""
        shared, name = self._shared, self._named(envelope["source"])
        known = self._known(name)
        key = key or [column.name for column in known.key] if known else key
        if not key:
            return  # a truncate, and nothing to empty
        reading = shared.theirs.reading(value, key)
        schema = followed(known, name, reading.columns)
        if known is not None and changes(known, schema) is None:
            raise NotAdopted(
                f"The columns of {name} changed in a way that is not followed: they may be added and dropped only.",
                solution="Have the connector write the table to a new topic, with a snapshot; or capture it instead.",
            )
        self._end_half()
        ids = shared.registrar.schema_ids(schema)
        topic = shared.registrar.change_topic(name)
        if not self.begun:
            self._begin(name, ids[0], topic, place)
        elif schema != known:
            log.warning("table altered, new columns are NULL in rows that are not sent again", table=str(name))
            shared.window.markers.append(SchemaChanged(name, shared.window.position, ids[0], rewrite=False))
        database = envelope["source"]["db"]
        transcoder = Transcoder(shared.pipeline, database, schema, ids, shared.epoch, conversions=_as_it_is)
        self.name, self.begun = name, True
        self._shape = _Shape(schema_id_of(value), reading, schema, topic, transcoder)
        self._delete_buried(reading)

    def _named(self, source: Mapping[str, Any]) -> TableName:
        if source["connector"] != CONNECTOR:
            raise NotAdopted(f"Debezium's connector for {source['connector']} wrote a record, not that for Postgres.")
        name = TableName(source["schema"], source["table"])
        if self.name not in (None, name):
            raise NotAdopted(
                f"The topic has records of two tables, {self.name} and {name}.",
                solution="Take the transformation out that routes them to one topic.",
            )
        elsewhere = self._shared.topic_of.setdefault(name, self.topic)
        if elsewhere != self.topic:
            raise NotAdopted(
                f"Table {name} is on topic {elsewhere} as well, so nobody knows the order of its changes.",
                solution="Leave one of the two topics out of `adopt.topics`.",
            )
        return name

    def _known(self, name: TableName) -> TableSchema | None:
        """The shape that the log last told of."""
        if self._shape is not None:
            return self._shape.schema
        shapes = self._shared.schemas.shapes_of(table_id(name)) if self.begun else []
        return shapes[-1] if shapes else None

    def _begin(self, name: TableName, schema_id: SchemaId, topic: str, place: LogPlace) -> None:
        """With an empty copy: the rows that Debezium copied stand on its topic, among the changes."""
        window = self._shared.window
        self._shared.registrar.ensure_copy_topic(name, window.lsn)
        begin = place.ends.get(topic, (0,))[0]
        window.markers += [
            CopyStarted(name, schema_id, window.lsn, "", "debezium", begin, place.next_offset),
            CopyFinished(name, window.lsn, 0, 0, (0,), window.lsn),
        ]
        log.info("table adopted", table=str(name), topic=self.topic, generation=str(window.lsn))

    def stop(self, error: PenstockError) -> None:
        reason = f"{error.reason} (topic {self.topic}, offset {self.next - 1})"
        solution = f"{error.solution} {_ANEW}"
        log.error("table stopped", topic=self.topic, table=str(self.name), error=reason, solution=solution)
        self.stopped, self._half = True, None
        self._buried.clear()
        if self.begun and self.name is not None:
            marker = TableErrored(self.name, self._shared.window.position, reason, solution)
            self._shared.window.markers.append(marker)


def _operation(envelope: Mapping[str, Any], key: bytes | None) -> Op:
    if "op" not in envelope or "source" not in envelope:
        raise NotAdopted(
            "A record has not the envelope of Debezium.",
            solution="Leave the topic out of `adopt.topics`, or take the transformation out that unwraps its records.",
        )
    op = _OPS.get(envelope["op"])
    if op is None:
        raise NotAdopted(f"A record has the operation {envelope['op']}, which is no change of a row.")
    if key is None and op is not Op.TRUNCATE:
        raise NotAdopted(
            "A record has no key.",
            solution="Give the table a primary key, or name one in `message.key.columns` of the connector.",
        )
    return op


def _origin(source: Mapping[str, Any]) -> Origin:
    """Debezium's time, transaction and LSN, as they are; the window gives the position."""
    committed = int(source.get("ts_us") or source["ts_ms"] * 1000)
    snapshot = str(source.get("snapshot") or "false")
    return Origin(0, committed, source.get("txId"), source.get("lsn") or 0, 0, snapshot)


def _as_it_is(_column: Column) -> Any:  # noqa: ANN401 -- `Reading` has converted the values
    return lambda value: value


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
