"""The reference pump: frames of the walsender to records of Kafka, on the decoder. The compiled pump's oracle."""

from __future__ import annotations

from capture.errors import RecordTooLarge
from capture.pgoutput.decoder import decode
from capture.pgoutput.messages import Begin, Commit
from capture.pgoutput.stream import XLogData, decode_frame
from capture.transcode.contract import PumpedTable, PumpedTables, Send
from capture.transcode.reference import COPY_HEADER, Origin, relation_of
from capture.transcode.sender import Batch
from schemas.errors import MalformedMessage
from schemas.identifiers import SchemaId


class Pump:
    """Decodes what it leaves a second time; it is there to be right."""

    table: PumpedTable

    def __init__(self, tables: PumpedTables, send: Send, largest: int, safe: int, commit_ts: int, full: int) -> None:
        self.origin = Origin(0, commit_ts, None, 0, 0)
        self.in_transaction = False
        self.safe = safe
        self.rows = 0
        self.used = 0
        self.full = full
        self._tables = tables
        self._send = send
        self._largest = largest
        self._moved: dict[tuple[str, SchemaId], tuple[int, int]] = {}
        self._batches: dict[str, Batch] = {}

    def run(self, messages: memoryview | bytes) -> memoryview | None:
        view = memoryview(messages)
        self.used = 0
        try:
            while (frame := self._next_frame(view)) is not None:
                if not self._take(frame):
                    return frame
                if self.rows >= self.full and not self.in_transaction:
                    break
        finally:
            self._hand_on()
        return None

    def send(self, table: PumpedTable, key: bytes | None, value: bytes) -> None:
        self._put(table, key, value)
        self._hand_on()

    def moved(self) -> dict[tuple[str, SchemaId], tuple[int, int]]:
        return dict(self._moved)

    def reset(self) -> None:
        self._moved.clear()
        self.rows = 0

    def _next_frame(self, messages: memoryview) -> memoryview | None:
        begin = self.used
        if len(messages) - begin < COPY_HEADER.size:
            return None
        kind, length = COPY_HEADER.unpack_from(messages, begin)
        if kind != b"d" or len(messages) - begin - 1 < length:
            return None
        if length < COPY_HEADER.size - 1:
            raise MalformedMessage("A message of COPY is shorter than its length", offset=begin)
        self.used = begin + 1 + length
        return messages[begin + COPY_HEADER.size : self.used]

    def _take(self, data: memoryview) -> bool:
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
        self._put(table, *record)
        self.origin.ordinal += 1
        return True

    def _put(self, table: PumpedTable, key: bytes | None, value: bytes) -> None:
        self.table = table
        if len(key or b"") + len(value) > self._largest:
            raise RecordTooLarge(len(key or b"") + len(value), self._largest)
        self._batches.setdefault(table.topic, Batch()).add(key, value)
        place = (table.topic, table.transcoder.schema_id)
        rows, size = self._moved.get(place, (0, 0))
        self._moved[place] = (rows + 1, size + len(value))
        self.rows += 1

    def _hand_on(self) -> None:
        batches, self._batches = self._batches, {}
        for topic, records in batches.items():
            self._send(topic, records)
