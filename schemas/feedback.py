"""The record on the feedback topic: how far one destination is, as a whole and table by table. Key = destination."""

from __future__ import annotations

import json
from dataclasses import dataclass

from schemas.identifiers import DestinationName, LogId, TableName
from schemas.lsn import Lsn
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
                "tables": [
                    {
                        "table": list(report.table),
                        "phase": json.dumps(phase_to_json(report.phase)),
                        "lsn": report.lsn,
                        "generation": report.generation,
                        "rows_copied": report.rows_copied,
                    }
                    for report in self.tables
                ],
            }
        )

    @classmethod
    def decode(cls, record: bytes) -> Feedback:
        value = _CODEC.decode(record)
        return cls(
            destination=DestinationName(value["destination"]),
            log_id=LogId(value["log_id"]),
            lsn=Lsn(value["lsn"]),
            commit_ts=value["commit_ts"],
            applied_at=value["applied_at"],
            tables=tuple(
                TableReport(
                    table=TableName(*report["table"]),
                    phase=phase_from_json(json.loads(report["phase"])),
                    lsn=Lsn(report["lsn"]),
                    generation=Lsn(report["generation"]),
                    rows_copied=report["rows_copied"],
                )
                for report in value["tables"]
            ),
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
