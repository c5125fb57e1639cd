"""Commands for one table, at one destination or all of them: checked against what destinations last told, then sent.

What is told may be some moments old, and a destination that is not running tells nothing: so apply checks again, and
logs a command that makes no sense when it comes to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import assert_never

import typer

from console.config import Config, load
from console.control import send_command
from console.errors import CommandRefused
from console.pipeline_state import read_feedback
from schemas.control import ApplyCommand, Pause, Resume, Rollback, Skip
from schemas.feedback import Feedback, TableReport
from schemas.identifiers import DestinationName, TableName
from schemas.lsn import NOWHERE
from schemas.phases import Errored, Ready, SyncDone
from schemas.settings import closest
from stores.kafka_log import KafkaLog

Make = Callable[[TableName, DestinationName | None], ApplyCommand]


def table_named(text: str) -> TableName:
    """`schema.table`; without a schema, public."""
    schema, dot, name = text.partition(".")
    return TableName(schema, name) if dot else TableName("public", text)


def ask(file: Path, table: str, destination: str | None, make: Make) -> None:
    """Sends the command; CommandRefused where it makes sense at none of the destinations that it is for."""
    pipeline = load(file)
    if destination is None and pipeline.destinations:
        chosen, names = None, list(pipeline.destinations)
    else:
        chosen = pipeline.destination_named(destination)
        names = [chosen]
    command = make(table_named(table), chosen)
    refusals = _refusals(pipeline, command, names)
    told = {name: reason for name, reason in refusals.items() if reason is not None}
    if len(told) == len(refusals):
        raise CommandRefused(" ".join(told.values()))
    for reason in told.values():
        typer.echo(f"passed over: {reason}", err=True)
    sent = send_command(pipeline, command)
    places = ", ".join(name for name, reason in refusals.items() if reason is None)
    typer.echo(f"asked {places} to {type(command).__name__.lower()} {command.table} (command {sent})")


def _refusals(
    pipeline: Config, command: ApplyCommand, destinations: list[DestinationName]
) -> Mapping[DestinationName, str | None]:
    """For each destination, why the command makes no sense there; None: it does."""
    with KafkaLog(pipeline.kafka) as log:
        heard = read_feedback(log, pipeline.pipeline, destinations)
    return {name: _refusal(name, heard.get(name), command) for name in destinations}


def _refusal(name: DestinationName, feedback: Feedback | None, command: ApplyCommand) -> str | None:
    if feedback is None:
        return f"Destination {name} has told nothing yet."
    reports = {report.table: report for report in feedback.tables}
    report = reports.get(command.table)
    if report is None:
        near = closest(str(command.table), [str(each) for each in reports])
        return f"Destination {name} has no table {command.table}" + (f"; did you mean {near}?" if near else ".")
    reason = why_not(report, command)
    return None if reason is None else f"At destination {name}, {reason}"


def why_not(report: TableReport, command: ApplyCommand) -> str | None:
    """Why the command makes no sense for a table that is reported so."""
    table = report.table
    match command:
        case Pause():
            return f"{table} is paused already." if report.paused else None
        case Resume():
            return None if report.paused else f"{table} is not paused."
        case Rollback() | Skip():
            return _why_not_again(report) or (_why_not_passed(report, command) if isinstance(command, Skip) else None)
        case _:
            assert_never(command)


def _why_not_again(report: TableReport) -> str | None:
    table = report.table
    if not isinstance(report.phase, Errored) or not report.phase.attempt:
        return f"{table} is not held by an error."
    if report.generation == NOWHERE:
        return f"{table} was stopped by capture, which left changes out: `penstock resync {table}` copies it."
    return None


def _why_not_passed(report: TableReport, command: Skip) -> str | None:
    if isinstance(report.phase, Errored) and not isinstance(report.phase.held, Ready | SyncDone):
        return f"{report.table} is held in {type(report.phase.held).__name__}: it is no change that holds it."
    if command.position.commit_lsn < report.lsn:
        return f"{report.table} stands at {report.lsn}: it has passed {command.position} already."
    return None
