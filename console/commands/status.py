"""`penstock status`: tables, phases, lag by stage, WAL held and by whom."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import psycopg
import typer
from pydantic import ByteSize
from rich.console import Console

from capture.errors import source_error
from capture.preflight import connect
from console.commands.options import ConfigFile
from console.config import DEFAULT_FILE, Config, load
from console.output import as_json, human_bytes, human_duration, stderr, stdout, table, words
from console.pipeline_state import LogState, SourceState, read_log, read_source
from console.replayable import read_replayable
from console.status import status as make_status
from schemas.errors import SourceError
from stores.kafka_log import KafkaLog


def status(
    *,
    config: ConfigFile = DEFAULT_FILE,
    json: Annotated[bool, typer.Option("--json", help="For programs: every fact, as JSON.")] = False,
) -> None:
    """Show tables, phases, lag by stage in bytes and seconds, and the WAL that is held, by whom, for how long yet."""
    pipeline = load(config)
    with KafkaLog(pipeline.kafka) as log:
        said = read_log(log, pipeline.pipeline, pipeline.live_destinations)
        told = said.feedback.values()
        said = replace(said, replayable=read_replayable(log, pipeline.kafka, pipeline.pipeline, said.last, told))
    report = make_status(pipeline, _source(pipeline, said), said)
    if json:
        typer.echo(as_json(report))
    else:
        print_status(report, stdout())


def _source(pipeline: Config, said: LogState) -> SourceState | None:
    """The source, or None where it does not answer or is Debezium's: what Kafka knows is shown all the same."""
    if pipeline.settings.adopt is not None:
        return None
    try:
        with connect(pipeline.source) as connection:
            return read_source(connection, pipeline, said.copying)
    except SourceError as error:
        stderr().print(f"warning: {error.reason}")
    except psycopg.Error as error:
        stderr().print(f"warning: {source_error(error, 'reading the status of the slot').reason}")
    return None


def print_status(report: dict[str, Any], out: Console) -> None:
    slot, capture = report["slot"], report["capture"]
    stages = table("stage", "at", "lag", "age of what it lacks", right=["lag", "age of what it lacks"])
    stages.add_row("source", report["source"]["wal_lsn"] or "not reachable", "", "")
    stages.add_row("capture", capture["checkpoint_lsn"] or "no checkpoint yet", *_lag(capture))
    for name, destination in report["destinations"].items():
        stages.add_row(words(name), destination["lsn"] or "no feedback yet", *_lag(destination))
    out.print(f"pipeline {report['pipeline']}", style="bold")
    out.print(stages)
    held = f", held by {', '.join(slot['held_by'])}" if slot["held_by"] else ""
    running = f"in use by process {slot['active_pid']}" if slot["active"] else "not in use"
    out.print(f"\nslot {slot['name']}: {running}, {human_bytes(slot['wal_held_bytes'])} of WAL{held}", markup=False)
    out.print(f"acknowledge policy: {policy_in_words(report['acknowledge'])}", markup=False)
    out.print(f"forecast: {forecast_in_words(slot)}", markup=False)
    if report["snapshot"] is not None:
        out.print(f"copies: {snapshot_in_words(report['snapshot'])}", markup=False)
    for line in replay_in_words(report["replay"]):
        out.print(words(line))
    for name, destination in report["destinations"].items():
        out.print()
        out.print(tables_of(name, destination))


def policy_in_words(acknowledge: dict[str, Any]) -> str:
    most = acknowledge["max_wal_bytes"]
    bound = f", at most {ByteSize(most).human_readable(decimal=True)} of WAL" if most is not None else ""
    switched = " (switched; `penstock acknowledge configured` takes that back)" if acknowledge["switched"] else ""
    return f"{acknowledge['policy']}{bound}{switched}"


def forecast_in_words(slot: dict[str, Any]) -> str:
    growth, limit = slot["wal_growth_bytes_per_second"], slot["wal_limit_bytes"]
    seconds = slot["wal_limit_seconds"]
    if slot["wal_status"] == "lost":
        return "the slot is lost: Postgres has removed WAL that it needed"
    if growth is None:
        pace = "too little was seen to tell how fast its WAL grows"
    elif growth > 0:
        pace = f"its WAL grows by {human_bytes(growth)} a second"
    else:
        pace = "its WAL does not grow"
    if limit is None:
        return f"{pace}; no max_slot_wal_keep_size bounds it"
    reached = f"would be reached in about {human_duration(seconds)}" if seconds is not None else "is not in sight"
    return f"{pace}; max_slot_wal_keep_size ({human_bytes(limit)}) {reached}"


def replay_in_words(replay: dict[str, Any]) -> list[str]:
    tables = replay["tables"]
    if not tables:
        return ["replay: no destination has told of a table yet"]
    cannot = {name: facts for name, facts in tables.items() if facts["reason"] is not None}
    at = f" ({replay['from_time']})" if replay["from_time"] else ""
    able = f"from {replay['from_lsn']}{at} on" if replay["from_lsn"] else "nothing can be replayed"
    return [
        f"replay: {len(tables) - len(cannot)} of {len(tables)} tables, {able}",
        *(f"  not {name}: {facts['reason']}; `{facts['solution']}`" for name, facts in cannot.items()),
    ]


def snapshot_in_words(snapshot: dict[str, Any]) -> str:
    whom = [
        *(f"process {pid}" for pid in snapshot["waits_for_pids"]),
        *(f"prepared transaction {gid!r}" for gid in snapshot["waits_for_prepared"]),
    ]
    return f"a snapshot waits for open transactions: {', '.join(whom)}" if whom else "a snapshot is being taken"


def tables_of(name: str, destination: dict[str, Any]) -> Any:  # noqa: ANN401 -- a rich renderable
    made = table("table", "phase", "rows copied", "at", "lag", "age", right=["rows copied", "lag", "age"], title=name)
    for each, facts in destination["tables"].items():
        phase = "Paused" if facts["paused"] else facts["phase"]
        made.add_row(words(each), phase, rows_copied_in_words(facts), facts["position"], *_lag(facts))
        if facts["reason"]:
            made.add_row("", words(facts["reason"], style="" if facts["paused"] else "red"))
            made.add_row("", words(facts["solution"]))
        for line in (tries_in_words(facts), skipped_in_words(facts)):
            if line:
                made.add_row("", words(line))
    return made


def tries_in_words(facts: dict[str, Any]) -> str:
    if not facts["attempt"]:
        return ""
    left = facts["next_try_seconds"]
    again = "waits for somebody" if left is None else f"tried again in {human_duration(left)}"
    return f"failed {facts['attempt']} times in a row, {again}" if facts["attempt"] > 1 else f"failed once, {again}"


def skipped_in_words(facts: dict[str, Any]) -> str:
    return f"lacks what was skipped: {', '.join(facts['skipped'])}" if facts["skipped"] else ""


def rows_copied_in_words(facts: dict[str, Any]) -> str:
    on_kafka, share, left = facts["rows_on_kafka"], facts["copy_share"], facts["copy_seconds_left"]
    rows = f"{facts['rows_copied']:,}" if on_kafka is None else f"{on_kafka:,} on Kafka"
    done = "" if share is None else f", {share:.0%}"
    return rows + done + ("" if left is None else f", about {human_duration(left)} left")


def _lag(facts: dict[str, Any]) -> tuple[str, str]:
    return human_bytes(facts["lag_bytes"]), human_duration(facts["lag_seconds"])
