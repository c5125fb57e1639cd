"""Commands for a table, on the command line: what makes no sense is told before anything is sent."""

from __future__ import annotations

import pytest

from console.table_commands import table_named, why_not
from schemas.control import ApplyCommand, Pause, Resume, Rollback, Skip
from schemas.errors import Retry
from schemas.feedback import TableReport
from schemas.identifiers import TableName
from schemas.lsn import NOWHERE, Lsn, Position
from schemas.phases import DataSync, Errored, Init, Phase, Ready, StoredPhase

ORDERS = TableName("public", "orders")
AT = Position(Lsn(100), 3)


def an_errored(held: StoredPhase = Ready(), attempt: int = 1) -> Errored:  # noqa: B008 -- a constant
    return Errored("why", "what", Retry.MANUAL, attempt, held)


def a_report(phase: Phase = Ready(), *, paused: bool = False, generation: int = 20) -> TableReport:  # noqa: B008
    return TableReport(ORDERS, phase, Lsn(100), Lsn(generation), 5, paused)


@pytest.mark.parametrize(
    ("report", "command"),
    [
        (a_report(an_errored()), Rollback(ORDERS)),
        (a_report(an_errored(Init())), Rollback(ORDERS)),
        (a_report(an_errored(), paused=True), Rollback(ORDERS)),
        (a_report(), Pause(ORDERS)),
        (a_report(an_errored()), Pause(ORDERS)),
        (a_report(an_errored(attempt=0), paused=True), Resume(ORDERS)),
        (a_report(an_errored()), Skip(ORDERS, AT)),
    ],
)
def test_a_command_that_makes_sense_is_sent(report: TableReport, command: ApplyCommand) -> None:
    assert why_not(report, command) is None


@pytest.mark.parametrize(
    ("report", "command", "why"),
    [
        (a_report(), Rollback(ORDERS), "not held by an error"),
        (a_report(an_errored(attempt=0), paused=True), Rollback(ORDERS), "not held by an error"),
        (a_report(an_errored(Init()), generation=NOWHERE), Rollback(ORDERS), "penstock resync public.orders"),
        (a_report(an_errored(), paused=True), Pause(ORDERS), "paused already"),
        (a_report(an_errored()), Resume(ORDERS), "not paused"),
        (a_report(), Skip(ORDERS, AT), "not held by an error"),
        (a_report(an_errored(DataSync())), Skip(ORDERS, AT), "held in DataSync"),
        (a_report(an_errored()), Skip(ORDERS, Position(Lsn(99), 0)), "passed 0/63/0 already"),
    ],
)
def test_a_command_that_makes_no_sense_is_told(report: TableReport, command: ApplyCommand, why: str) -> None:
    assert why in (why_not(report, command) or "")


@pytest.mark.parametrize(
    ("text", "name"),
    [("orders", ORDERS), ("shop.orders", TableName("shop", "orders")), ("a.b.c", TableName("a", "b.c"))],
)
def test_a_table_without_a_schema_is_of_public(text: str, name: TableName) -> None:
    assert table_named(text) == name
