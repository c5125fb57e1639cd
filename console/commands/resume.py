"""`penstock resume`: let a paused table go on."""

from __future__ import annotations

from console.commands.options import AllDestinationsOption, ConfigFile, TableArgument
from console.config import DEFAULT_FILE
from console.table_commands import ask
from schemas.control import Resume


def resume(
    *, table: TableArgument, destination: AllDestinationsOption = None, config: ConfigFile = DEFAULT_FILE
) -> None:
    """Let a paused table catch up from where it stands."""
    ask(config, table, destination, Resume)
