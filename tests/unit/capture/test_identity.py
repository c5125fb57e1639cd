from __future__ import annotations

import dataclasses

import pytest

from capture.errors import SlotLost, SourceChanged, SourceUnreachable
from capture.identity import Server, fork_from, judge_source
from capture.slots import SlotState, judge_slot
from schemas.errors import Retry
from schemas.identifiers import SlotName
from schemas.lsn import Lsn
from stores.state import SourceIdentity

KNOWN = SourceIdentity("7000000000000000001", 16384, 3)
LAST = Lsn(1000)
HISTORY = "1\t0/64\tno recovery target specified\n\n2\t0/2BC\tat restore point # 1\n3\t0/3E8\tbefore 2000-01-01\n"
"""Timeline 4: it left 1 at 100, 2 at 700 and 3 at 1000."""


def judged(now: SourceIdentity, known: SourceIdentity | None = KNOWN, last: Lsn = LAST, wal_end: Lsn = LAST) -> None:
    judge_source(known, Server(now, wal_end, is_standby=False, version=17), last, lambda _: HISTORY)


def test_the_server_that_we_knew_is_accepted() -> None:
    judged(KNOWN)


def test_a_server_is_accepted_where_nothing_is_known_but_not_if_its_wal_ends_too_early() -> None:
    judged(KNOWN, known=None)

    with pytest.raises(SourceChanged, match="ends at 0/3E7, before the last checkpoint at 0/3E8"):
        judged(KNOWN, known=None, wal_end=Lsn(999))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"system_id": "7"}, "This is another server"),
        ({"database_oid": 5}, "The database was made anew"),
        ({"timeline": 2}, "timeline 2, which does not come from timeline 3"),
    ],
)
def test_another_server_database_or_branch_is_refused(change: dict[str, object], reason: str) -> None:
    with pytest.raises(SourceChanged, match=reason) as refused:
        judged(dataclasses.replace(KNOWN, **change))  # type: ignore[arg-type] -- fields of the test

    assert "source.dsn" in refused.value.solution
    assert 'on_lost_slot = "resync"' in refused.value.solution
    assert refused.value.retry is Retry.MANUAL


def test_a_later_timeline_is_accepted_only_if_it_began_with_all_that_we_have() -> None:
    now = dataclasses.replace(KNOWN, timeline=4)

    judged(now, last=Lsn(1000), wal_end=Lsn(2000))

    with pytest.raises(SourceChanged, match="left timeline 3 at 0/3E8, before the last checkpoint at 0/3E9"):
        judged(now, last=Lsn(1001), wal_end=Lsn(2000))


def test_a_timeline_that_skips_ours_is_refused() -> None:
    with pytest.raises(SourceChanged, match="does not come from timeline 5"):
        judged(dataclasses.replace(KNOWN, timeline=6), known=dataclasses.replace(KNOWN, timeline=5))


def test_a_standby_that_is_behind_is_waited_for() -> None:
    with pytest.raises(SourceUnreachable) as refused:
        judge_source(KNOWN, Server(KNOWN, Lsn(999), is_standby=True, version=17), LAST, lambda _: HISTORY)

    assert refused.value.retry is Retry.TIMED


def test_a_history_tells_where_each_timeline_was_left() -> None:
    assert [fork_from(timeline, HISTORY) for timeline in range(1, 5)] == [Lsn(100), Lsn(700), Lsn(1000), None]


def a_slot(confirmed: str = "0/3E8", wal_status: str = "reserved", invalidation: str | None = None) -> SlotState:
    return SlotState(SlotName("s"), "pgoutput", "shop", confirmed, wal_status, None, invalidation)


def test_a_slot_at_or_below_the_last_checkpoint_goes_on_and_one_above_has_lost_something() -> None:
    judge_slot(a_slot(), SlotName("s"), LAST)
    judge_slot(a_slot(), SlotName("s"), None)

    with pytest.raises(SlotLost, match="moved to 0/3E9, past the last checkpoint"):
        judge_slot(a_slot("0/3E9"), SlotName("s"), LAST)


def test_a_missing_slot_is_a_first_start_only_without_a_checkpoint() -> None:
    judge_slot(None, SlotName("s"), None)

    with pytest.raises(SlotLost, match="Slot s is gone"):
        judge_slot(None, SlotName("s"), LAST)


@pytest.mark.parametrize(
    ("invalidation", "setting"),
    [
        (None, "max_slot_wal_keep_size"),
        ("wal_removed", "max_slot_wal_keep_size"),
        ("idle_timeout", "idle_replication_slot_timeout"),
        ("wal_level_insufficient", "wal_level"),
        ("rows_removed", "hot_standby_feedback"),
    ],
)
def test_a_slot_that_postgres_took_away_names_the_setting_that_would_have_kept_it(
    invalidation: str | None, setting: str
) -> None:
    with pytest.raises(SlotLost) as refused:
        judge_slot(a_slot(wal_status="lost", invalidation=invalidation), SlotName("s"), LAST)

    assert setting in refused.value.solution
    assert 'on_lost_slot = "resync"' in refused.value.solution
