"""The record on the feedback topic: how far one destination is, as a whole and table by table. Key = destination."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from schemas.identifiers import DestinationName, LogId, TableName
from schemas.lsn import Lsn, Position
from schemas.phases import Phase, phase_from_json, phase_to_json
from schemas.wire import FixedCodec


@dataclass(frozen=True, slots=True)
class TableReport:
    """One table as its destination has it."""

    table: TableName
    phase: Phase
    lsn: Lsn
    generation: Lsn
    rows_copied: int
    paused: bool = False
    """Held because somebody asked for it; the phase is Errored then, and says so."""
    skipped: tuple[Position, ...] = ()
    """What the table was told to pass over, and so lacks."""

    def _told(self) -> str:
        """The phase, and what readers of the version before pass over."""
        told = phase_to_json(self.phase)
        if self.paused:
            told["paused"] = True
        if self.skipped:
            told["skipped"] = [str(position) for position in self.skipped]
        return json.dumps(told)

    def encoded(self) -> dict[str, Any]:
        return {
            "table": list(self.table),
            "phase": self._told(),
            "lsn": self.lsn,
            "generation": self.generation,
            "rows_copied": self.rows_copied,
        }

    @classmethod
    def decoded(cls, value: dict[str, Any]) -> TableReport:
        told = json.loads(value["phase"])
        return cls(
            table=TableName(*value["table"]),
            phase=phase_from_json(told),
            lsn=Lsn(value["lsn"]),
            generation=Lsn(value["generation"]),
            rows_copied=value["rows_copied"],
            paused=told.get("paused", False),
            skipped=tuple(Position.parse(text) for text in told.get("skipped", ())),
        )


@dataclass(frozen=True, slots=True)
class Feedback:
    """The destination has all transactions with commit LSN < `lsn`, in the log `log_id`."""

    destination: DestinationName
    log_id: LogId
    lsn: Lsn
    commit_ts: int
    applied_at: int
    tables: tuple[TableReport, ...] = ()

    def encode(self) -> bytes:
        return _CODEC.encode(
            {
                "destination": self.destination,
                "log_id": self.log_id,
                "lsn": self.lsn,
                "commit_ts": self.commit_ts,
                "applied_at": self.applied_at,
                "tables": [report.encoded() for report in self.tables],
            }
        )

    @classmethod
    def decode(cls, record: bytes) -> Feedback:
        return _CODEC.decode(record, cls._made)

    @classmethod
    def _made(cls, value: dict[str, Any]) -> Feedback:
        return cls(
            destination=DestinationName(value["destination"]),
            log_id=LogId(value["log_id"]),
            lsn=Lsn(value["lsn"]),
            commit_ts=value["commit_ts"],
            applied_at=value["applied_at"],
            tables=tuple(TableReport.decoded(report) for report in value["tables"]),
        )


_CODEC = FixedCodec(
    {
        "type": "record",
        "name": "Feedback",
        "fields": [
            {"name": "destination", "type": "string"},
            {"name": "log_id", "type": "string"},
            {"name": "lsn", "type": "long"},
            {"name": "commit_ts", "type": "long"},
            {"name": "applied_at", "type": "long"},
            {
                "name": "tables",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "TableReport",
                        "fields": [
                            {"name": "table", "type": {"type": "array", "items": "string"}},
                            {"name": "phase", "type": "string"},
                            {"name": "lsn", "type": "long"},
                            {"name": "generation", "type": "long"},
                            {"name": "rows_copied", "type": "long"},
                        ],
                    },
                },
            },
        ],
    }
)
