"""`penstock resync`: ask a running pipeline to copy a table again."""

from __future__ import annotations

import typer

from capture.preflight import connect, published_names
from console.commands.options import ConfigFile, TableArgument
from console.config import DEFAULT_FILE, Config, load
from console.control import send_command
from console.table_commands import table_named
from schemas.control import Resync
from schemas.errors import ConfigError
from schemas.identifiers import TableName
from schemas.settings import closest


def resync(
    *,
    table: TableArgument,
    config: ConfigFile = DEFAULT_FILE,
) -> None:
    """Copy a table again, at every destination, while the others go on."""
    pipeline = load(config)
    name = _published(pipeline, table)
    command = send_command(pipeline, Resync(name))
    typer.echo(f"asked to resync {name} (command {command})")


def _published(pipeline: Config, text: str) -> TableName:
    wanted = table_named(text)
    if pipeline.settings.adopt is not None:
        return wanted  # adopt knows its tables
    with connect(pipeline.source) as connection:
        known = published_names(connection, pipeline.source.publication)
    if wanted not in known:
        near = closest(str(wanted), [str(each) for each in known])
        raise ConfigError(
            f"Publication {pipeline.source.publication} has no table {wanted}"
            + (f"; did you mean {near}?" if near else "."),
            solution="Name a table of the publication, as schema.table.",
        )
    return wanted
