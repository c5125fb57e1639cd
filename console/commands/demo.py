"""`penstock demo`: the whole system on this machine, a shop that lives, and the proof that its copy is equal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    *,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0, help="How long the shop lives. Left out: until Ctrl-C.")
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Keep all data and logs there. Left out: nothing stays."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Another seed, another life of the shop.")] = 1,
) -> None:
    """Start Postgres with a living shop, Kafka, capture and apply into DuckDB; show it; prove it equal at the end."""
    from console.demo.run import run_demo  # noqa: PLC0415 -- DuckDB and the local stack are not needed for --help

    run_demo(seconds, keep, seed)
