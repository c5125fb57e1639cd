"""`penstock skip`: let a table pass over one change that it cannot take."""

from __future__ import annotations

from typing import Annotated

import typer

from console.commands.options import AllDestinationsOption, ConfigFile, TableArgument
from console.config import DEFAULT_FILE
from console.table_commands import ask
from schemas.control import Skip
from schemas.lsn import Position


def _position(text: str) -> Position:
    try:
        return Position.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def skip(
    *,
    table: TableArgument,
    position: Annotated[
        Position,
        typer.Option(
            "--position",
            metavar="LSN/ORDINAL",
            parser=_position,
            help="source.commit_lsn and source.ordinal of the change on its topic, such as 16/B374D848/5.",
        ),
    ],
    destination: AllDestinationsOption = None,
    config: ConfigFile = DEFAULT_FILE,
) -> None:
    """Let a table that is held by an error pass over one change. The mirror differs from the source from then on.

    `penstock status` shows what was skipped, until a new copy makes the mirror whole again."""
    ask(config, table, destination, lambda name, chosen: Skip(name, position, chosen))
