"""One of Debezium's topics: its records, in their order, become changes of its table in the open window.

c, r       a create, which is an upsert to whoever applies it: a connector that starts again sends some again
u          an update; placeholders of TOASTed values become columns that were not sent
d, then c  with the headers of a changed key: a move, whose halves stand side by side
t          a truncate; a tombstone is passed over
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from confluent_kafka import Message

from capture.adopt.debezium import DebeziumSchemas, NotAdopted, Reading, Row, followed, table_id
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

    @property
    def read_to(self) -> int:
        """Where another epoch has to go on."""
        return self.next if self._half is None else self._half.offset

    def is_of(self, table: TableName) -> bool:
        """By its records; before the first, by the name that Debezium gives a topic."""
        return self.name == table if self.name is not None else self.topic.endswith(f".{table}")

    def take(self, message: Message, place: LogPlace) -> None:
        """The record at `next`, or after it where compaction left a hole. `place`: the log's, before this window."""
        offset = message.offset()
        assert offset is not None  # noqa: S101 -- a delivered message has one
        self.next = offset + 1
        value = _bytes(message.value())
        if value is None:
            return  # a tombstone: the delete stands before it
        envelope, key = self._shared.theirs.decoded(value), self._key(message)
        if "op" not in envelope:
            raise NotAdopted(
                f"Topic {self.topic} has a record without the envelope of Debezium.",
                solution="Leave it out of `adopt.topics`, or take the transformation out that unwraps its records.",
            )
        op = _OPS.get(envelope["op"])
        if op is None:
            raise NotAdopted(f"Topic {self.topic} has a record with an operation that is not known.")
        if not key and op is not Op.TRUNCATE:
            raise NotAdopted(
                f"Topic {self.topic} has a record without a key.",
                solution="Give the table a primary key, or name one in `message.key.columns` of the connector.",
            )
        if key and (self._shape is None or schema_id_of(value) != self._shape.written_as):
            self._take_on(value, envelope, key, place)
        if self._shape is None:
            return  # a truncate before any row
        self._change(op, envelope, key, {header[0] for header in message.headers() or ()}, offset)

    def _key(self, message: Message) -> Mapping[str, Any]:
        key = _bytes(message.key())
        return self._shared.theirs.decoded(key) if key is not None else {}

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

    def _take_on(self, value: bytes, envelope: Mapping[str, Any], key: Mapping[str, Any], place: LogPlace) -> None:
        """Another of Debezium's schemas: the table is new, or has another shape, or only its schema other words."""
        shared, reading = self._shared, self._shared.theirs.reading(value, key.keys())
        name = self._named(envelope["source"])
        known = self._known(name)
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

    def _named(self, source: Mapping[str, Any]) -> TableName:
        if source["connector"] != CONNECTOR:
            raise NotAdopted(f"Topic {self.topic} was written by Debezium's connector for {source['connector']}.")
        name = TableName(source["schema"], source["table"])
        if self.name not in (None, name):
            raise NotAdopted(
                f"Topic {self.topic} has records of two tables, {self.name} and {name}.",
                solution="Take the transformation out that routes them to one topic.",
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
        solution = f"{error.solution} {_ANEW}"
        log.error("table stopped", topic=self.topic, table=str(self.name), error=error.reason, solution=solution)
        self.stopped, self._half = True, None
        if self.begun and self.name is not None:
            marker = TableErrored(self.name, self._shared.window.position, error.reason, solution)
            self._shared.window.markers.append(marker)


def _origin(source: Mapping[str, Any]) -> Origin:
    """Debezium's time, transaction and LSN, as they are; the window gives the position."""
    committed = int(source.get("ts_us") or source["ts_ms"] * 1000)
    snapshot = str(source.get("snapshot") or "false")
    return Origin(0, committed, source.get("txId"), source.get("lsn") or 0, 0, snapshot)


def _as_it_is(_column: Column) -> Any:  # noqa: ANN401 -- `Reading` has converted the values
    return lambda value: value


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
