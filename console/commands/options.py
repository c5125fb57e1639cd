"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

ConfigFile: TypeAlias = Annotated[
    Path, typer.Option("--config", "-c", metavar="FILE", help="The configuration file.", show_default=True)
]
ParentPipe: TypeAlias = Annotated[int | None, typer.Option("--parent-pipe", hidden=True)]
DestinationOption: TypeAlias = Annotated[
    str | None, typer.Option("--destination", metavar="NAME", help="Which destination, where there are several.")
]
AllDestinationsOption: TypeAlias = Annotated[
    str | None, typer.Option("--destination", metavar="NAME", help="At this destination. Left out: at all of them.")
]
TableArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="TABLE", help="schema.table; without a schema, public.")
]
