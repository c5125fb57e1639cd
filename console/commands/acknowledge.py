"""`penstock acknowledge`: switch the policy by which a running pipeline lets WAL go."""

from __future__ import annotations

import enum
from typing import Annotated

import typer
from pydantic import ValidationError

from console.commands.options import ConfigFile
from console.config import DEFAULT_FILE, load
from console.control import send_command
from schemas.acknowledge import AcknowledgeConfig, Policy
from schemas.control import SwitchPolicy
from schemas.errors import ConfigError
from schemas.settings import explain


class Choice(enum.Enum):
    """A policy, or none of one's own."""

    DESTINATIONS = Policy.DESTINATIONS.value
    KAFKA = Policy.KAFKA.value
    BOUNDED = Policy.BOUNDED.value
    CONFIGURED = "configured"


def acknowledge(
    *,
    policy: Annotated[
        Choice, typer.Argument(metavar="POLICY", help="destinations, kafka or bounded; configured: as the file says.")
    ],
    max_wal: Annotated[
        str | None, typer.Option("--max-wal", metavar="SIZE", help="For bounded: most WAL that is kept, such as 20GB.")
    ] = None,
    config: ConfigFile = DEFAULT_FILE,
) -> None:
    """Let WAL go by another policy, without a restart.

    It holds, over restarts of capture too, until the next `penstock acknowledge`; the policy in the file counts again
    after `penstock acknowledge configured`. `penstock status` shows what is in force."""
    pipeline = load(config)
    wanted = _wanted(policy, max_wal)
    command = send_command(pipeline, SwitchPolicy(wanted))
    told = f"{pipeline.settings.acknowledge}, as configured" if wanted is None else str(wanted)
    typer.echo(f"asked to acknowledge by the policy {told} (command {command})")


def _wanted(policy: Choice, max_wal: str | None) -> AcknowledgeConfig | None:
    if policy is Choice.CONFIGURED:
        if max_wal is not None:
            raise ConfigError(
                "--max-wal does nothing with the policy that is configured.",
                solution="Leave it out, or: `penstock acknowledge bounded --max-wal SIZE`.",
            )
        return None
    try:
        return AcknowledgeConfig.model_validate({"policy": policy.value, "max_wal": max_wal})
    except ValidationError as error:
        raise ConfigError(
            "; ".join(explain(error, AcknowledgeConfig, "acknowledge")),
            solution="`penstock acknowledge bounded --max-wal 20GB`, or another policy without --max-wal.",
        ) from None
