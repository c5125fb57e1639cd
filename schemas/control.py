"""The record on the control topic: a command to a running pipeline. Each kind of command has a schema of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias, assert_never

from schemas.acknowledge import AcknowledgeConfig
from schemas.identifiers import DestinationName, TableName
from schemas.lsn import Position
from schemas.wire import FixedCodec, NotOurRecord, schema_id_of


@dataclass(frozen=True, slots=True)
class Resync:
    """Copy the table again, for every destination."""

    table: TableName


@dataclass(frozen=True, slots=True)
class SwitchPolicy:
    """Let WAL go by this policy until the next such command, over restarts; None: by the configured one again."""

    wanted: AcknowledgeConfig | None


@dataclass(frozen=True, slots=True)
class Rollback:
    """Let a table that is held by an error try again, at once. `destination` None, here and below: at all of them."""

    table: TableName
    destination: DestinationName | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """Hold a table where it stands until it is resumed."""

    table: TableName
    destination: DestinationName | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """Let a paused table go on."""

    table: TableName
    destination: DestinationName | None = None


@dataclass(frozen=True, slots=True)
class Skip:
    """Let a table that is held by an error pass over the change at this position."""

    table: TableName
    position: Position
    destination: DestinationName | None = None


CaptureCommand: TypeAlias = Resync | SwitchPolicy
ApplyCommand: TypeAlias = Rollback | Pause | Resume | Skip
Command: TypeAlias = CaptureCommand | ApplyCommand


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
            case Rollback() | Pause() | Resume() | Skip() as command:
                return _TABLE_COMMAND.encode(
                    {
                        "id": self.id,
                        "command": type(command).__name__.lower(),
                        "table": list(command.table),
                        "destination": command.destination,
                        "position": str(command.position) if isinstance(command, Skip) else None,
                    }
                )
            case _:
                assert_never(self.command)

    @classmethod
    def decode(cls, record: bytes) -> Control:
        schema = schema_id_of(record)
        if schema == _SWITCH_POLICY.id:
            return _SWITCH_POLICY.decode(record, lambda it: cls(it["id"], _policy(it["policy"], it["max_wal"])))
        if schema == _TABLE_COMMAND.id:
            return _TABLE_COMMAND.decode(record, lambda it: cls(it["id"], _table_command(it)))
        return _RESYNC.decode(record, lambda it: cls(it["id"], Resync(TableName(*it["table"]))))


def _table_command(value: dict[str, Any]) -> ApplyCommand:
    table, destination = TableName(*value["table"]), value["destination"]
    match value["command"]:
        case "rollback":
            return Rollback(table, destination)
        case "pause":
            return Pause(table, destination)
        case "resume":
            return Resume(table, destination)
        case "skip" if value["position"] is not None:
            return Skip(table, Position.parse(value["position"]), destination)
        case _:
            raise NotOurRecord("A command asks something of a table that this version of penstock does not know.")


def _policy(policy: str | None, max_wal: int | None) -> SwitchPolicy:
    if policy is None:
        return SwitchPolicy(None)
    try:
        return SwitchPolicy(AcknowledgeConfig.model_validate({"policy": policy, "max_wal": max_wal}))
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
_TABLE_COMMAND = FixedCodec(
    {
        "type": "record",
        "name": "TableCommand",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "command", "type": "string"},
            {"name": "table", "type": {"type": "array", "items": "string"}},
            {"name": "destination", "type": ["null", "string"]},
            {"name": "position", "type": ["null", "string"]},
        ],
    }
)
