"""`penstock pause`: hold a table where it stands."""

from __future__ import annotations

from console.commands.options import AllDestinationsOption, ConfigFile, TableArgument
from console.config import DEFAULT_FILE
from console.table_commands import ask
from schemas.control import Pause


def pause(
    *, table: TableArgument, destination: AllDestinationsOption = None, config: ConfigFile = DEFAULT_FILE
) -> None:
    """Hold a table where it stands, until `penstock resume`. The others go on, and WAL is released all the same.

    Its changes wait on Kafka, for as long as `kafka.retention`. A pause holds over restarts and over new copies."""
    ask(config, table, destination, Pause)
