"""The record on the checkpoints topic: what lies on the other topics, and what became true of the tables.

A checkpoint says: the transactions with `start` <= commit LSN < `lsn` lie, among others, below `ends`, and `moved` has
their row counts per topic and schema. The first of an epoch opens it, with an empty window, and ends all epochs before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from schemas.identifiers import Epoch, LogId, SchemaId, TableName
from schemas.lsn import Lsn, Position
from schemas.wire import FixedCodec

COMPLETES = b"completes"
"""The key of a checkpoint with which capture ends because it was to copy only, and has. No other has a key."""


@dataclass(frozen=True, slots=True)
class CopyStarted:
    """A table's copy at `generation` begins.

    Its changes from that LSN on lie at or above `changes_from` on its change topic, in checkpoints at or above
    `log_from` on the checkpoints topic."""

    table: TableName
    schema_id: SchemaId
    generation: Lsn
    filenode: str
    fingerprint: str
    changes_from: int
    log_from: int


@dataclass(frozen=True, slots=True)
class CopyFinished:
    """All `rows` of the copy, `bytes` in all, lie below `ends` on the copy topic. `last`: its newest snapshot.

    Where `last` is above `generation`, the copy was interrupted and resumed: `rows` counts what earlier attempts left,
    too, and a key may come more than once."""

    table: TableName
    generation: Lsn
    rows: int
    bytes: int
    ends: tuple[int, ...]
    last: Lsn


@dataclass(frozen=True, slots=True)
class SchemaChanged:
    """From `position` on the table has another shape. `rewrite`: rows changed without events, only a copy is true."""

    table: TableName
    position: Position
    schema_id: SchemaId
    rewrite: bool


@dataclass(frozen=True, slots=True)
class TableRemoved:
    """The table left the publication."""

    table: TableName


@dataclass(frozen=True, slots=True)
class TableErrored:
    """Capture cannot carry the table; its records end at `position`."""

    table: TableName
    position: Position
    reason: str
    solution: str


Marker: TypeAlias = CopyStarted | CopyFinished | SchemaChanged | TableRemoved | TableErrored


@dataclass(frozen=True, slots=True)
class Moved:
    """How much of one schema a window added to one topic."""

    topic: str
    schema_id: SchemaId
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A window [start, lsn) and where its records lie."""

    log_id: LogId
    epoch: Epoch
    opens: bool
    start: Lsn
    lsn: Lsn
    commit_ts: int
    """Commit time of the newest transaction known, in microseconds since 1970."""
    emitted_at: int
    moved: tuple[Moved, ...] = ()
    ends: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    control: int = 0
    markers: tuple[Marker, ...] = ()

    def encode(self) -> bytes:
        return _CODEC.encode(
            {
                "log_id": self.log_id,
                "epoch": self.epoch,
                "opens": self.opens,
                "from": self.start,
                "lsn": self.lsn,
                "commit_ts": self.commit_ts,
                "emitted_at": self.emitted_at,
                "moved": [
                    {"topic": m.topic, "schema_id": m.schema_id, "rows": m.rows, "bytes": m.bytes} for m in self.moved
                ],
                "ends": {topic: list(offsets) for topic, offsets in self.ends.items()},
                "control": self.control,
                "markers": [_marker_to_avro(marker) for marker in self.markers],
            }
        )

    @classmethod
    def decode(cls, record: bytes) -> Checkpoint:
        return _CODEC.decode(record, cls._made)

    @classmethod
    def _made(cls, value: dict[str, Any]) -> Checkpoint:
        return cls(
            log_id=LogId(value["log_id"]),
            epoch=Epoch(value["epoch"]),
            opens=value["opens"],
            start=Lsn(value["from"]),
            lsn=Lsn(value["lsn"]),
            commit_ts=value["commit_ts"],
            emitted_at=value["emitted_at"],
            moved=tuple(Moved(**moved) for moved in value["moved"]),
            ends={topic: tuple(offsets) for topic, offsets in value["ends"].items()},
            control=value["control"],
            markers=tuple(_marker_from_avro(*marker) for marker in value["markers"]),
        )


def _marker_to_avro(marker: Marker) -> tuple[str, dict[str, Any]]:
    fields = {name: getattr(marker, name) for name in marker.__dataclass_fields__}
    fields["table"] = list(marker.table)
    if "position" in fields:
        fields["commit_lsn"], fields["ordinal"] = fields.pop("position")
    return type(marker).__name__, fields


def _marker_from_avro(name: str, fields: dict[str, Any]) -> Marker:
    fields["table"] = TableName(*fields["table"])
    if "ordinal" in fields:
        fields["position"] = Position(Lsn(fields.pop("commit_lsn")), fields.pop("ordinal"))
    for lsn in ("generation", "last"):
        if lsn in fields:
            fields[lsn] = Lsn(fields[lsn])
    if "ends" in fields:
        fields["ends"] = tuple(fields["ends"])
    return _MARKERS[name](**fields)


_MARKERS: dict[str, type[Marker]] = {
    marker.__name__: marker for marker in (CopyStarted, CopyFinished, SchemaChanged, TableRemoved, TableErrored)
}


def _record(name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 -- Avro types are JSON
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": avro} for field, avro in fields.items()],
    }


_STRINGS = {"type": "array", "items": "string"}
_LONGS = {"type": "array", "items": "long"}
_CODEC = FixedCodec(
    _record(
        "Checkpoint",
        log_id="string",
        epoch="long",
        opens="boolean",
        **{"from": "long"},
        lsn="long",
        commit_ts="long",
        emitted_at="long",
        moved={"type": "array", "items": _record("Moved", topic="string", schema_id="int", rows="long", bytes="long")},
        ends={"type": "map", "values": _LONGS},
        control="long",
        markers={
            "type": "array",
            "items": [
                _record(
                    "CopyStarted",
                    table=_STRINGS,
                    schema_id="int",
                    generation="long",
                    filenode="string",
                    fingerprint="string",
                    changes_from="long",
                    log_from="long",
                ),
                _record(
                    "CopyFinished",
                    table=_STRINGS,
                    generation="long",
                    rows="long",
                    bytes="long",
                    ends=_LONGS,
                    last="long",
                ),
                _record(
                    "SchemaChanged",
                    table=_STRINGS,
                    commit_lsn="long",
                    ordinal="long",
                    schema_id="int",
                    rewrite="boolean",
                ),
                _record("TableRemoved", table=_STRINGS),
                _record(
                    "TableErrored",
                    table=_STRINGS,
                    commit_lsn="long",
                    ordinal="long",
                    reason="string",
                    solution="string",
                ),
            ],
        },
    )
)
