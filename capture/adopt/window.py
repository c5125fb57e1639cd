"""What was read of Debezium's topics since the last checkpoint, on its way to the pipeline's own.

A window is one number, given by us, that stands where a commit LSN stands in capture's records; the changes in it are
counted. So a position is unique and rises, over all tables, in the order in which their topics were read.
"""

from __future__ import annotations

from collections import defaultdict

from capture.adopt.debezium import Row
from capture.errors import RecordTooLarge
from capture.producer import BoundedProducer
from capture.transcode.choose import chosen_path
from capture.transcode.contract import Records
from capture.transcode.reference import Origin, Transcoder
from schemas.checkpoint import Marker, Moved
from schemas.envelope import Op
from schemas.identifiers import SchemaId
from schemas.lsn import Lsn, Position


class Window:
    """The open one. `next` begins the one after it."""

    def __init__(self, lsn: Lsn, commit_ts: int, producer: BoundedProducer) -> None:
        self._producer = producer
        self._batches: dict[str, Records] = defaultdict(chosen_path().batch)
        self._counted: dict[tuple[str, SchemaId], tuple[int, int]] = {}
        self.lsn = lsn
        self.commit_ts = commit_ts
        self.changes = 0
        self.markers: list[Marker] = []

    @property
    def position(self) -> Position:
        """Of the next change."""
        return Position(self.lsn, self.changes)

    @property
    def moved(self) -> tuple[Moved, ...]:
        return tuple(Moved(topic, schema, rows, size) for (topic, schema), (rows, size) in self._counted.items())

    def write(
        self,
        topic: str,
        transcoder: Transcoder,
        op: Op,
        before: Row | None,
        after: Row | None,
        origin: Origin,
    ) -> None:
        """Raises RecordTooLarge, and has not written then."""
        origin.commit_lsn, origin.ordinal = self.position
        value = transcoder.value(op, before, after, origin)
        if len(value) > self._producer.largest:
            raise RecordTooLarge(len(value), self._producer.largest)
        row = after if after is not None else before
        self._batches[topic].add(None if row is None else transcoder.key(row), value)
        rows, size = self._counted.get((topic, transcoder.schema_id), (0, 0))
        self._counted[topic, transcoder.schema_id] = rows + 1, size + len(value)
        self.commit_ts = max(self.commit_ts, origin.commit_ts)
        self.changes += 1

    def send(self) -> None:
        for topic, records in self._batches.items():
            self._producer.send_batch(topic, records)
        self._batches.clear()

    def flush(self) -> None:
        """Returns when Kafka has all of it."""
        self.send()
        self._producer.flush()

    def next(self, lsn: Lsn) -> None:
        self.lsn, self.changes = lsn, 0
        self._counted.clear()
        self.markers.clear()
