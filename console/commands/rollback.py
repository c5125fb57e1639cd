"""`penstock rollback`: let a table that is held by an error try again."""

from __future__ import annotations

from console.commands.options import AllDestinationsOption, ConfigFile, TableArgument
from console.config import DEFAULT_FILE
from console.table_commands import ask
from schemas.control import Rollback


def rollback(
    *, table: TableArgument, destination: AllDestinationsOption = None, config: ConfigFile = DEFAULT_FILE
) -> None:
    """Let a table that is held by an error try again, at once: for when you have mended what held it.

    It goes back to the phase that it was held in, and catches up from where it stands while the others go on. Errors
    that time may heal are tried again without this."""
    ask(config, table, destination, Rollback)
