"""`penstock resync`: ask a running pipeline to copy a table again."""

from __future__ import annotations

from typing import Annotated

import typer

from capture.preflight import connect, published_names
from console.commands.options import ConfigFile
from console.config import DEFAULT_FILE, Config, load
from console.control import send_command
from schemas.control import Resync
from schemas.errors import ConfigError
from schemas.identifiers import TableName
from schemas.settings import closest


def resync(
    *,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="schema.table; without a schema, public.")],
    config: ConfigFile = DEFAULT_FILE,
) -> None:
    """Copy a table again, at every destination, while the others go on."""
    pipeline = load(config)
    name = _published(pipeline, table)
    command = send_command(pipeline, Resync(name))
    typer.echo(f"asked to resync {name} (command {command})")


def _published(pipeline: Config, text: str) -> TableName:
    schema, dot, name = text.partition(".")
    wanted = TableName(schema, name) if dot else TableName("public", text)
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
