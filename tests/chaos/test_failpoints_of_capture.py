"""Capture goes wrong at each of its failpoints, one after the other in one pipeline and under load: the topics make
exactly the source of what it left, at every moment.

No Spark: what a destination would have is read from the topics, row by row (tests/support/replicas.py).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

import pytest

from console.control import send_command
from console.local_stack.kafka import LocalKafka
from console.local_stack.postgres import LocalPostgres
from schemas.control import Resync
from schemas.failpoints import VARIABLE
from schemas.identifiers import TableName
from schemas.lsn import Lsn
from tests.support.bank import TABLES, TOTAL, Bank
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline
from tests.support.replicas import Replica, replicas
from tests.support.walk import Step, told, walk

GROUPS = ("slot", "topic", "checkpoint", "producer", "status", "store", "schema", "command", "snapshot", "copy")
EACH_WRITE_OF_A_COPY = [Step("store.saved", "kill", passes) for passes in range(2, 9)]
IN_A_WORKER = ("copy.range_starting", "copy.range_sent", "copy.range_flushed")
"""Capture outlives these, and every other worker dies there, too."""
SETTINGS = {
    "PENSTOCK_CAPTURE__COPY_RANGE_SIZE": "16KiB",
    "PENSTOCK_CAPTURE__PUBLICATION_INTERVAL": "200ms",
    "PENSTOCK_CAPTURE__STATUS_INTERVAL": "200ms",
}
AFRESH = {"slot": {"PENSTOCK_CAPTURE__ON_LOST_SLOT": "resync"}}
"""A slot is made at the first start, and where it was lost."""
ROWS = 800

NAMES = [TableName("public", table) for table in TABLES]
GIRO, SAVINGS = TableName("public", "giro"), TableName("public", "savings")


@pytest.mark.further
@pytest.mark.timeout(900)
def test_whatever_goes_wrong_at_any_place_of_capture_the_topics_make_the_source(
    postgres: LocalPostgres, kafka: LocalKafka, tmp_path: Path
) -> None:
    steps = [*walk(GROUPS), *EACH_WRITE_OF_A_COPY]

    with (
        Pipeline(f"t{secrets.token_hex(4)}", postgres, kafka, None, tmp_path) as pipeline,
        Bank(pipeline, ROWS).open() as bank,
    ):
        for step, following in zip(steps, [*steps[1:], None], strict=True):
            prepare(pipeline, bank, step)
            go_wrong(pipeline, step)
            if following is None or following.group != step.group:
                compare(pipeline, bank, SETTINGS | AFRESH.get(step.group, {}))

    told("capture", steps)


def prepare(pipeline: Pipeline, bank: Bank, step: Step) -> None:
    """The next capture shall come to the place."""
    match step.group:
        case "slot":
            slot = f"penstock_{pipeline.name}"
            drop = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s"
            eventually(lambda: not is_active(pipeline, slot), what="the end of the walsender")
            pipeline.source.execute(drop, [slot])
        case "schema":
            bank.alter()
        case "topic" | "store" | "command" | "snapshot" | "copy":
            send_command(pipeline.config(), Resync(TableName("public", "keyed")))
        case _:
            pass


def is_active(pipeline: Pipeline, slot: str) -> bool:
    row = pipeline.source.execute("select active from pg_replication_slots where slot_name = %s", [slot]).fetchone()
    return bool(row and row[0])


def go_wrong(pipeline: Pipeline, step: Step) -> None:
    """Capture comes to the place, and dies there, or says why it ends, or goes on by itself."""
    pipeline.start_capture(
        **SETTINGS, **AFRESH.get(step.group, {}), **{VARIABLE: f"{step.place}={step.action}@{step.passes}"}
    )
    assert pipeline.capture is not None
    process = pipeline.capture.process
    eventually(lambda: is_at(step, pipeline), seconds=30, what=f"capture at {step}")
    if step.kills and step.place not in IN_A_WORKER:
        assert process.wait(30) == -9
        return
    target = pipeline.wal_lsn()
    eventually(lambda: process.poll() is not None or pipeline.checkpoint_lsn() >= target, what=f"life after {step}")
    if process.poll() is not None:
        assert process.poll() == 1, step
        assert "exit code" not in pipeline.capture.failure().reason, step
        assert step.place not in IN_A_WORKER
    pipeline.kill_capture()


def is_at(step: Step, pipeline: Pipeline) -> bool:
    """As it tells in its log."""
    log = max(pipeline.folder.glob("capture*.log"), key=lambda log: (len(log.name), log.name))
    return f'"failpoint", "place": "{step.place}", "action": "{step.action}"' in log.read_text()


def compare(pipeline: Pipeline, bank: Bank, settings: Mapping[str, str]) -> None:
    """A capture that nothing happens to brings the topics to where the source is."""
    pipeline.start_capture(**settings)
    config = pipeline.config()
    with bank.still():
        target = pipeline.wal_lsn()
        eventually(lambda: pipeline.checkpoint_lsn() >= target, what="a checkpoint past all that is committed")
        found = eventually(
            lambda: replicas(config.kafka, config.pipeline, NAMES, target, money_is_there), what="every copy"
        )
        for table, name in zip(TABLES, NAMES, strict=True):
            rows = pipeline.source.execute(f"select * from {table}".encode()).fetchall()
            assert found[name].rows() == sorted(rows, key=repr), table
    pipeline.kill_capture()


def money_is_there(tables: Mapping[TableName, Replica], commit_lsn: Lsn) -> None:
    """After every transaction, from where both copies are of one moment on."""
    if commit_lsn >= max(tables[GIRO].last, tables[SAVINGS].last):
        assert sum(amount for name in (GIRO, SAVINGS) for _, amount in tables[name].rows()) == TOTAL, commit_lsn
