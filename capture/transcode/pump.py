"""The reference pump: frames of the walsender to records of Kafka, on the decoder. The compiled pump's oracle."""

from __future__ import annotations

from capture.pgoutput.decoder import decode
from capture.pgoutput.messages import Begin, Commit
from capture.pgoutput.stream import XLogData, decode_frame
from capture.transcode.contract import Given, PumpedTable, PumpedTables, Send, Source
from capture.transcode.reference import Origin, relation_of
from schemas.identifiers import SchemaId


class Pump:
    """Decodes what it leaves a second time; it is there to be right."""

    table: PumpedTable

    def __init__(self, tables: PumpedTables, send: Send, safe: int, commit_ts: int, full: int) -> None:
        self.origin = Origin(0, commit_ts, None, 0, 0)
        self.in_transaction = False
        self.safe = safe
        self.rows = 0
        self._tables = tables
        self._send = send
        self.full = full
        self._moved: dict[tuple[str, SchemaId], tuple[int, int]] = {}

    def run(self, source: Source, frames: int) -> Given | None:
        for _ in range(frames):
            given = source(1)
            if given[0] <= 0 or not self._take(given[1]):
                return given
            if self.rows >= self.full and not self.in_transaction:
                return None
        return None

    def send(self, table: PumpedTable, key: bytes | None, value: bytes) -> None:
        self.table = table
        self._send(table.topic, key, value)
        place = (table.topic, table.transcoder.schema_id)
        rows, size = self._moved.get(place, (0, 0))
        self._moved[place] = (rows + 1, size + len(value))
        self.rows += 1

    def moved(self) -> dict[tuple[str, SchemaId], tuple[int, int]]:
        return dict(self._moved)

    def reset(self) -> None:
        self._moved.clear()
        self.rows = 0

    def _take(self, data: memoryview | bytes) -> bool:
        frame = decode_frame(data)
        if not isinstance(frame, XLogData):
            return False
        relation = relation_of(frame.payload)
        if relation is not None:
            return self._change(self._tables[relation], frame)
        match decode(frame.payload):
            case Begin(final_lsn=lsn, commit_ts=commit_ts, xid=xid):
                origin = self.origin
                origin.commit_lsn, origin.commit_ts, origin.xid, origin.ordinal = lsn, commit_ts, xid, 0
                self.in_transaction = True
            case Commit(end_lsn=end):
                self.safe = end
                self.in_transaction = False
            case _:
                return False
        return True

    def _change(self, table: PumpedTable, frame: XLogData) -> bool:
        self.table = table
        if table.errored:
            return False
        self.origin.lsn = frame.start
        record = table.transcoder.change(frame.payload, self.origin)
        if record is None:
            return False
        self.send(table, *record)
        self.origin.ordinal += 1
        return True
