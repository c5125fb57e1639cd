"""`penstock wait`: read your writes."""

from __future__ import annotations

from typing import Annotated

import typer

from capture.preflight import connect, published_names
from console.commands.options import ConfigFile, DestinationOption
from console.config import DEFAULT_FILE, Config, load
from console.output import stderr
from console.waiting import Held, wait_until_there
from schemas.errors import SourceError
from schemas.identifiers import DestinationName, TableName
from schemas.lsn import Lsn
from schemas.phases import Errored
from stores.kafka_log import KafkaLog


def _lsn(text: str) -> Lsn:
    try:
        return Lsn.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _published(pipeline: Config, name: DestinationName) -> list[TableName]:
    """The tables that the destination must know; none where the source does not answer, which is no reason to fail."""
    try:
        with connect(pipeline.source) as connection:
            names = published_names(connection, pipeline.source.publication)
            return [table for table in names if pipeline.destinations[name].selects(table)]
    except SourceError as error:
        stderr().print(f"warning: {error.reason}")
        return []


def wait(
    *,
    lsn: Annotated[
        Lsn,
        typer.Option(
            "--lsn", metavar="LSN", parser=_lsn, help="What `select pg_current_wal_lsn()` gave after your commit."
        ),
    ],
    config: ConfigFile = DEFAULT_FILE,
    destination: DestinationOption = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0, help="Seconds to wait at most.")] = 60.0,
) -> None:
    """Return when the destination has every transaction that was committed before LSN was read; else exit code 1."""
    pipeline = load(config)
    name = pipeline.live_destination_named(destination)
    with KafkaLog(pipeline.kafka) as log:
        feedback = wait_until_there(
            log, pipeline.pipeline, name, lsn, timeout, held=Held.PASSED_OVER, tables=_published(pipeline, name)
        )
    for report in feedback.tables:
        if isinstance(report.phase, Errored):
            stderr().print(f"warning: table {report.table} is held at {report.lsn}: {report.phase.reason}")
