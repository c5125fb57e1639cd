"""`penstock setup-source`: event triggers at the source, which tell of DDL."""

from __future__ import annotations

from typing import Annotated

import typer

from capture.preflight import connect
from capture.setup_source import Setup, set_up
from console.commands.options import ConfigFile
from console.config import DEFAULT_FILE, load


def setup_source(
    *,
    remove: Annotated[bool, typer.Option("--remove", help="Take them away again.")] = False,
    show: Annotated[bool, typer.Option("--print", help="Print the SQL for a DBA, and do nothing.")] = False,
    config: ConfigFile = DEFAULT_FILE,
) -> None:
    """Install event triggers that tell of DDL: a table that is rewritten, or altered without a change, is noticed.

    It takes a superuser of the source, may be repeated, and serves every pipeline of the database."""
    setup = Setup.REMOVE if remove else Setup.INSTALL
    if show:
        typer.echo(setup.script, nl=False)
        return
    pipeline = load(config)
    with connect(pipeline.source) as session:
        set_up(session, setup)
        database = session.info.dbname
    typer.echo(f"event triggers {'removed from' if remove else 'installed in'} database {database}")
