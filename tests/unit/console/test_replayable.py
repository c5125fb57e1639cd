"""What `penstock status` says of replays."""

from __future__ import annotations

from console.commands.status import replay_in_words
from console.replayable import Replayable, replay_report
from schemas.identifiers import TableName
from schemas.lsn import NOWHERE, Lsn

ORDERS, ITEMS, NOTES = (TableName("public", name) for name in ("orders", "items", "notes"))
TEN_O_CLOCK = 1_794_909_600_000_000


def test_a_replay_has_every_table_from_the_newest_of_their_copies_on() -> None:
    report = replay_report({ORDERS: Replayable(Lsn(0x200), TEN_O_CLOCK), ITEMS: Replayable(Lsn(0x300))})

    assert (report["from_lsn"], report["from_time"]) == ("0/300", "2026-11-17 10:00:00+00:00")
    assert report["tables"]["public.orders"]["from_lsn"] == "0/200"
    assert replay_in_words(report) == ["replay: 2 of 2 tables, from 0/300 (2026-11-17 10:00:00+00:00) on"]


def test_tables_that_no_replay_can_have_are_named_with_what_to_do() -> None:
    report = replay_report({ORDERS: Replayable(Lsn(0x200)), NOTES: Replayable(NOWHERE, reason="its copy is gone")})

    assert replay_in_words(report) == [
        "replay: 1 of 2 tables, from 0/200 on",
        "  not public.notes: its copy is gone; `penstock resync public.notes`",
    ]


def test_before_any_destination_has_told_nothing_is_known() -> None:
    assert replay_in_words(replay_report({})) == ["replay: no destination has told of a table yet"]
