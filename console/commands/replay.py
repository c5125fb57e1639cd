"""`penstock replay`: a new destination from what lies on the topics, whole or as of a moment."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Annotated

import typer

from apply_spark.config import FilledBy
from console.commands.options import ConfigFile, ParentPipe
from console.config import DEFAULT_FILE, load
from console.environment import forget_settings
from console.metrics_server import serving_metrics
from console.stages import FAILED, running_as_stage
from schemas.errors import ConfigError
from schemas.lsn import Lsn


def _until(text: str) -> Lsn | datetime:
    try:
        if "/" in text:
            return Lsn.parse(text)
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{error}; give an LSN such as 16/B374D848 or a time such as '2026-11-17 10:00:00+00'"
        ) from None
    if moment.tzinfo is None:
        raise typer.BadParameter(f"{text!r} has no time zone; write it with one, such as '2026-11-17 10:00:00+00'")
    return moment


def replay(
    *,
    destination: Annotated[str, typer.Option("--destination", metavar="NAME", help="Which one to fill.")],
    config: ConfigFile = DEFAULT_FILE,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="LSN or TIME",
            help="Fill it with what was committed before this LSN, or up to this time; else with all that the log has.",
        ),
    ] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Leave out tables that the topics cannot fill; else none is filled.")
    ] = False,
    parent_pipe: ParentPipe = None,
) -> None:
    """Fill a new destination from the topics, beside the running ones; Postgres is not asked. Ends when it is full."""
    bound = _until(until) if until is not None else None
    with running_as_stage(parent_pipe, cut_short=FAILED) as stop:
        pipeline = load(config)
        forget_settings(os.environ)
        name = pipeline.destination_named(destination)
        if bound is not None and pipeline.destinations[name].filled_by is not FilledBy.REPLAY:
            raise ConfigError(
                f"destinations.{name} is a live destination: apply would take it on past --until, and capture would "
                "keep WAL for it.",
                solution=f'Write filled_by = "replay" into [destinations.{name}], or leave --until out.',
            )

        from apply_spark.destinations.registry import connector  # noqa: PLC0415 -- `penstock --help` stays fast
        from apply_spark.replay import Missing, run_replay  # noqa: PLC0415
        from apply_spark.replay_target import moment_text  # noqa: PLC0415
        from console.local_stack.spark import spark_runtime  # noqa: PLC0415

        settings = pipeline.apply_config(name, spark_runtime(connector(name, pipeline.destinations[name])))
        missing = Missing.LEFT_OUT if allow_missing else Missing.REFUSED
        # In the main thread Spark would put its own SIGINT handler in the place of ours.
        with (
            serving_metrics(settings.tuning.metrics_port, "apply.metrics_port"),
            ThreadPoolExecutor(1, thread_name_prefix="replay") as thread,
        ):
            held = thread.submit(run_replay, settings, bound, stop, None, missing).result()
        typer.echo(
            f"{name} holds every transaction with commit LSN < {held.lsn}; the newest checkpoint before it has "
            f"commits up to {moment_text(held.commit_ts)}"
        )
