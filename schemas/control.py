"""The record on the control topic: a command to a running pipeline. Each kind of command has a schema of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from schemas.acknowledge import AcknowledgeConfig
from schemas.identifiers import TableName
from schemas.wire import FixedCodec, NotOurRecord, schema_id_of


@dataclass(frozen=True, slots=True)
class Resync:
    """Copy the table again, for every destination."""

    table: TableName


@dataclass(frozen=True, slots=True)
class SwitchPolicy:
    """Let WAL go by this policy until the next such command, over restarts; None: by the configured one again."""

    wanted: AcknowledgeConfig | None


Command: TypeAlias = Resync | SwitchPolicy


@dataclass(frozen=True, slots=True)
class Control:
    """One command with an id, so that doing it twice can be told from asking twice."""

    id: str
    command: Command

    def encode(self) -> bytes:
        match self.command:
            case Resync(table=table):
                return _RESYNC.encode({"id": self.id, "command": "resync", "table": list(table)})
            case SwitchPolicy(wanted=wanted):
                policy = wanted.policy.value if wanted is not None else None
                max_wal = wanted.max_wal if wanted is not None else None
                return _SWITCH_POLICY.encode({"id": self.id, "policy": policy, "max_wal": max_wal})
            case _:
                assert_never(self.command)

    @classmethod
    def decode(cls, record: bytes) -> Control:
        if schema_id_of(record) == _SWITCH_POLICY.id:
            value = _SWITCH_POLICY.decode(record)
            return cls(value["id"], SwitchPolicy(_policy(value["policy"], value["max_wal"])))
        value = _RESYNC.decode(record)
        return cls(value["id"], Resync(TableName(*value["table"])))


def _policy(policy: str | None, max_wal: int | None) -> AcknowledgeConfig | None:
    if policy is None:
        return None
    try:
        return AcknowledgeConfig.model_validate({"policy": policy, "max_wal": max_wal})
    except ValueError as error:
        raise NotOurRecord("A command names an acknowledge policy that this version of penstock has not.") from error


_RESYNC = FixedCodec(
    {
        "type": "record",
        "name": "Control",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "command", "type": "string"},
            {"name": "table", "type": {"type": "array", "items": "string"}},
        ],
    }
)
_SWITCH_POLICY = FixedCodec(
    {
        "type": "record",
        "name": "SwitchPolicy",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "policy", "type": ["null", "string"]},
            {"name": "max_wal", "type": ["null", "long"]},
        ],
    }
)
