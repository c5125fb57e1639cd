"""Where a replay ends: at a checkpoint, or inside the window of one."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from apply_spark.errors import ReplayImpossible
from apply_spark.history import history
from apply_spark.replay_target import Target, leads_to, microseconds, moment_text, target, windows_after
from schemas.checkpoint import Checkpoint, CopyFinished, CopyStarted, Moved, SchemaChanged
from schemas.identifiers import Epoch, LogId, SchemaId, TableName
from schemas.lsn import Lsn, Position

SHOP = LogId("shop")


def checkpoint(start: int, lsn: int, epoch: int = 1, commit_ts: int = 0, **ends: int) -> Checkpoint:
    moved = tuple(Moved(topic, SchemaId(1), 1, 1) for topic in ends)
    found = {topic: (end,) for topic, end in ends.items()}
    return Checkpoint(SHOP, Epoch(epoch), start == lsn, Lsn(start), Lsn(lsn), commit_ts, 0, moved, found)


LOG = [
    (10, checkpoint(100, 100)),
    (11, checkpoint(100, 200, commit_ts=5)),
    (12, checkpoint(200, 300, commit_ts=6)),
    (14, checkpoint(300, 300, epoch=2, commit_ts=6)),
    (15, checkpoint(300, 400, epoch=2, commit_ts=7)),
]


def test_without_a_bound_it_is_the_end_of_the_log() -> None:
    assert target(LOG, None) == Target(SHOP, Lsn(400), Lsn(400), Epoch(2), 16, 7)


def test_a_bound_at_a_checkpoint_takes_it_whole() -> None:
    assert target(LOG, Lsn(200)) == Target(SHOP, Lsn(200), Lsn(200), Epoch(1), 12, 5)
    assert target(LOG, Lsn(100)) == Target(SHOP, Lsn(100), Lsn(100), Epoch(1), 11, 0)
    assert target(LOG, Lsn(300)) == Target(SHOP, Lsn(300), Lsn(300), Epoch(2), 15, 6)


def test_a_bound_inside_a_window_stops_before_its_checkpoint_and_cuts_it() -> None:
    found = target(LOG, Lsn(250))

    assert found == Target(SHOP, Lsn(250), Lsn(200), Epoch(1), 12, 5)
    assert found.is_cut
    assert found.begun([]).lsn == 200
    assert target(LOG, Lsn(301)) == Target(SHOP, Lsn(301), Lsn(300), Epoch(2), 15, 6)


def test_a_bound_outside_the_log_is_refused() -> None:
    with pytest.raises(ReplayImpossible, match="The log reaches to 0/190 only"):
        target(LOG, Lsn(401))
    with pytest.raises(ReplayImpossible, match="Nothing before 0/63 is left"):
        target(LOG, Lsn(99))
    with pytest.raises(ReplayImpossible, match="no checkpoint yet"):
        target([], None)


def test_a_time_is_looked_for_in_windows_with_rows_whose_newest_commit_is_later() -> None:
    log = [
        (0, checkpoint(100, 200, commit_ts=5, a=10, b=3)),
        (1, checkpoint(200, 300, commit_ts=9)),
        (2, checkpoint(300, 400, commit_ts=9, a=12, c=1)),
        (3, checkpoint(400, 500, commit_ts=11, a=20)),
    ]

    found = list(windows_after(log, 8))

    assert [(window.offset, window.before) for window in found] == [(2, {"a": 10, "c": 0}), (3, {"a": 12})]
    assert [window.offset for window in windows_after(log, 9)] == [3]


def test_a_moment_is_exact_to_the_microsecond() -> None:
    moment = datetime(2026, 11, 17, 12, 0, 0, 123457, tzinfo=timezone(timedelta(hours=2)))

    assert moment_text(microseconds(moment)) == "2026-11-17 10:00:00.123457+00:00"


ORDERS = TableName("public", "orders")
STARTED = CopyStarted(ORDERS, SchemaId(6), Lsn(110), "16384:1", "f00d", changes_from=0, log_from=11)
FINISHED = CopyFinished(ORDERS, Lsn(110), rows=3, bytes=90, ends=(3,), last=Lsn(110))
ALTERED = SchemaChanged(ORDERS, Position(Lsn(260), 0), SchemaId(7), rewrite=False)


def test_an_interrupted_replay_leads_to_its_end_and_to_one_to_which_the_same_shapes_lead() -> None:
    told = history(
        [*LOG[:1], (11, replace(LOG[1][1], markers=(STARTED, FINISHED))), (12, replace(LOG[2][1], markers=(ALTERED,)))]
    )
    assert told is not None
    copy = told.copy_at(ORDERS, Lsn(250))
    assert copy is not None
    wanted = target(LOG, Lsn(250))
    on_its_way = wanted.begun([copy.begun(Lsn(250))])

    assert leads_to(on_its_way, wanted, told)
    assert leads_to(on_its_way, target(LOG, Lsn(255)), told)
    assert not leads_to(on_its_way, target(LOG, Lsn(270)), told), "a shape comes between"
    assert not leads_to(on_its_way, target(LOG, Lsn(350)), told)
    filled = replace(on_its_way, lsn=Lsn(250))
    assert leads_to(filled, wanted, told)
    assert not leads_to(filled, target(LOG, Lsn(255)), told)
