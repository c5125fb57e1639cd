"""The command `penstock`. Exit codes: 0 done, 1 failed with reason and solution on stderr, 2 wrong usage."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from console.environment import log_format
from console.errors import StageFailed
from console.logs import set_up_logs
from console.output import stderr, words
from console.stages import ReportedToParent
from schemas.errors import PenstockError


class _Verbs(TyperGroup):
    """Turns an error that an operator can meet into two lines and an exit code, without a traceback."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 -- typer's own click is not public
        try:
            return super().invoke(ctx)
        except ReportedToParent:
            raise typer.Exit(1) from None
        except PenstockError as error:
            out = stderr()
            out.print(words(f"error: {error.reason}"))
            out.print(words(f"solution: {error.solution}"))
            raise typer.Exit(error.exit_code if isinstance(error, StageFailed) else 1) from error


_VERBS = (
    *("demo", "run", "capture", "adopt", "apply", "replay", "status", "doctor", "wait"),
    *("rollback", "pause", "resume", "skip", "resync", "acknowledge", "setup_source"),
)


def app(arguments: Sequence[str] = ()) -> typer.Typer:
    """The verb that the arguments begin with; every verb where they begin otherwise.

    A verb is imported when it is wanted: a stage is started often, and each has imports that the others do not need."""
    made = typer.Typer(
        cls=_Verbs,
        help="Carry every change of a Postgres database through Kafka and Spark to where it is needed.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        callback=_before_each_verb,
    )
    first = arguments[0].replace("-", "_") if arguments else ""
    for verb in [first] if first in _VERBS else _VERBS:
        made.command()(getattr(import_module(f"console.commands.{verb}"), verb))
    return made


def _print_version(wanted: bool) -> None:  # noqa: FBT001 -- typer calls it so
    if wanted:
        typer.echo(f"penstock {version('penstock')}")
        raise typer.Exit


def _before_each_verb(
    *,
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    set_up_logs(log_format(os.environ))


def main() -> None:
    arguments = sys.argv[1:]
    app(arguments)(arguments, prog_name="penstock")


if __name__ == "__main__":
    main()
