from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from capture.slot_wal import SlotWal
from capture.waiting import Writers
from console.commands.status import (
    forecast_in_words,
    policy_in_words,
    rows_copied_in_words,
    skipped_in_words,
    snapshot_in_words,
    tries_in_words,
)
from console.config import Config, load
from console.copy_progress import OnKafka
from console.pipeline_state import LogState, SlotState, SourceState
from console.status import held_by, status, tables_behind
from schemas.acknowledge import AcknowledgeConfig, Policy
from schemas.checkpoint import Checkpoint, Moved
from schemas.errors import Retry
from schemas.feedback import Feedback, TableReport
from schemas.identifiers import DestinationName, Epoch, LogId, SchemaId, TableName
from schemas.lsn import Lsn, Position
from schemas.phases import DataSync, Errored, Init, Phase, Ready
from schemas.topics import Topics

SECOND = 1_000_000
NOW = 1_000 * SECOND
LAKE = DestinationName("lake")
ORDERS = TableName("public", "orders")
EVENTS = TableName("public", "events")
SLOT = SlotState(active_pid=7, confirmed_flush_lsn=Lsn(100), restart_lsn=Lsn(50), wal_status="reserved")
SOURCE = SourceState(wal_lsn=Lsn(500), now=NOW, slot=SLOT)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "penstock.toml"
    path.write_text(
        """
        pipeline.name = "shop"
        source.dsn = "dbname=shop"
        source.publication = "p"
        kafka.bootstrap_servers = "broker:9092"
        destinations.lake.type = "duckdb"
        destinations.lake.path = "x.duckdb"
        destinations.screen.type = "stdout"
        """
    )
    return load(path, {})


def a_checkpoint(start: int, lsn: int, seconds_ago: float, *topics: str) -> Checkpoint:
    moved = tuple(Moved(topic, SchemaId(1), 1, 10) for topic in topics)
    moment = NOW - int(seconds_ago * SECOND)
    return Checkpoint(
        LogId("log"), Epoch(1), False, Lsn(start), Lsn(lsn), commit_ts=moment, emitted_at=moment + 1000, moved=moved
    )


def a_feedback(lsn: int, *tables: tuple[TableName, Phase, int], log_id: str = "log") -> Feedback:
    reports = tuple(TableReport(name, phase, Lsn(at), Lsn(20), 5) for name, phase, at in tables)
    return Feedback(LAKE, LogId(log_id), Lsn(lsn), NOW - 60 * SECOND, NOW, reports)


THREE = (
    a_checkpoint(0, 100, 30, "shop.public.orders"),
    a_checkpoint(100, 200, 20, "shop.public.events"),
    a_checkpoint(200, 300, 10, "shop.public.orders"),
)


def test_a_destination_at_the_last_checkpoint_has_no_lag_in_seconds(config: Config) -> None:
    report = status(config, SOURCE, LogState(THREE, {LAKE: a_feedback(300)}))

    assert report["destinations"]["lake"]["lag_seconds"] == 0
    assert report["destinations"]["lake"]["lag_bytes"] == 200


def test_a_table_that_waits_for_its_copy_shows_how_many_rows_of_it_kafka_has(config: Config) -> None:
    feedback = a_feedback(300, (ORDERS, Init(), 20), (EVENTS, Ready(), 300))
    topic = Topics(config.pipeline).copy(ORDERS, Lsn(20))

    report = status(config, SOURCE, LogState(THREE, {LAKE: feedback}, copied={topic: OnKafka(1234, None)}))

    tables = report["destinations"]["lake"]["tables"]
    assert tables[str(ORDERS)]["rows_on_kafka"] == 1234
    assert tables[str(EVENTS)]["rows_on_kafka"] is None


def test_a_copy_to_kafka_tells_its_share_of_the_rows_that_are_expected_and_the_time_left(config: Config) -> None:
    feedback = a_feedback(300, (ORDERS, Init(), 20), (EVENTS, Ready(), 300))
    topic = Topics(config.pipeline).copy(ORDERS, Lsn(20))
    log = LogState(THREE, {LAKE: feedback}, copied={topic: OnKafka(2000, NOW - 100 * SECOND)})

    def shown(rows: int | None) -> dict[str, Any]:
        expected = {ORDERS: rows} if rows is not None else {}
        report = status(config, replace(SOURCE, expected_rows=expected), log)
        tables: dict[str, dict[str, Any]] = report["destinations"]["lake"]["tables"]
        assert tables[str(EVENTS)]["copy_share"] is None
        return tables[str(ORDERS)]

    assert (shown(8000)["copy_share"], shown(8000)["copy_seconds_left"]) == (0.25, 300)
    assert rows_copied_in_words(shown(8000)) == "2,000 on Kafka, 25%, about 5 m 0 s left"
    assert (shown(1500)["copy_share"], shown(1500)["copy_seconds_left"]) == (0.99, None)
    assert (shown(None)["copy_share"], shown(None)["copy_seconds_left"]) == (None, None)
    assert rows_copied_in_words(shown(None)) == "2,000 on Kafka"


def test_a_copy_to_the_destination_tells_its_share_of_what_kafka_has_and_the_time_left(config: Config) -> None:
    def told(rows: int, seconds_ago: int, phase: Phase, destination: DestinationName = LAKE) -> Feedback:
        report = TableReport(ORDERS, phase, Lsn(20), Lsn(20), rows)
        return Feedback(destination, LogId("log"), Lsn(300), NOW, NOW - seconds_ago * SECOND, (report,))

    newest = told(3000, 0, DataSync())
    recent = (
        told(5, 90, Ready()),
        told(10, 80, DataSync(), DestinationName("screen")),
        told(1000, 20, DataSync()),
        newest,
    )
    topic = Topics(config.pipeline).copy(ORDERS, Lsn(20))
    log = LogState(THREE, {LAKE: newest}, recent, copied={topic: OnKafka(4000, NOW - 100 * SECOND)})

    table = status(config, SOURCE, log)["destinations"]["lake"]["tables"][str(ORDERS)]

    assert (table["rows_on_kafka"], table["copy_share"], table["copy_seconds_left"]) == (None, 0.75, 10)
    assert rows_copied_in_words(table) == "3,000, 75%, about 10 s left"


def test_lag_in_seconds_is_the_age_of_the_oldest_rows_that_are_lacking(config: Config) -> None:
    report = status(config, SOURCE, LogState(THREE, {LAKE: a_feedback(100)}))

    assert report["destinations"]["lake"]["lag_seconds"] == 20


def test_a_table_lags_only_behind_its_own_rows(config: Config) -> None:
    feedback = a_feedback(100, (ORDERS, Ready(), 100), (EVENTS, Ready(), 100))

    tables = status(config, SOURCE, LogState(THREE, {LAKE: feedback}))["destinations"]["lake"]["tables"]

    assert tables["public.orders"]["lag_seconds"] == 10
    assert tables["public.events"]["lag_seconds"] == 20


def test_empty_checkpoints_that_are_lacking_are_no_lag_in_seconds(config: Config) -> None:
    idle = (*THREE, a_checkpoint(300, 400, 1))

    report = status(config, SOURCE, LogState(idle, {LAKE: a_feedback(300)}))

    assert report["destinations"]["lake"]["lag_seconds"] == 0


def test_a_table_tells_phase_rows_position_and_why_it_is_held(config: Config) -> None:
    held = Errored("too long", "make it shorter", Retry.MANUAL, 1, Ready())
    feedback = a_feedback(300, (ORDERS, held, 100))

    table = status(config, SOURCE, LogState(THREE, {LAKE: feedback}))["destinations"]["lake"]["tables"]["public.orders"]

    assert table == {
        "phase": "Errored",
        "rows_copied": 5,
        "rows_on_kafka": None,
        "copy_share": None,
        "copy_seconds_left": None,
        "position": "0/64",
        "generation": "0/14",
        "lag_bytes": 400,
        "lag_seconds": 10,
        "reason": "too long",
        "solution": "make it shorter",
        "attempt": 1,
        "next_try": None,
        "next_try_seconds": None,
        "paused": False,
        "skipped": [],
    }


def test_capture_lags_by_the_age_of_what_it_captured_last(config: Config) -> None:
    report = status(config, SOURCE, LogState(THREE, {}))

    assert report["capture"] == {"checkpoint_lsn": "0/12C", "lag_bytes": 200, "lag_seconds": 10}


def test_wal_is_held_by_the_destination_furthest_behind(config: Config) -> None:
    feedback = a_feedback(100)
    screen = Feedback(DestinationName("screen"), LogId("log"), Lsn(200), NOW, NOW)

    log = LogState(THREE, {LAKE: feedback, screen.destination: screen})

    assert held_by(config, SOURCE, log) == ["lake"]
    assert status(config, SOURCE, log)["slot"]["wal_held_bytes"] == 450


def test_wal_is_held_by_a_destination_that_has_not_spoken_in_this_log(config: Config) -> None:
    assert held_by(config, SOURCE, LogState(THREE, {LAKE: a_feedback(300)})) == ["screen"]
    assert held_by(config, SOURCE, LogState(THREE, {LAKE: a_feedback(300, log_id="older")})) == ["lake", "screen"]


def test_wal_is_held_by_capture_where_every_destination_is_level_or_capture_does_not_run(config: Config) -> None:
    screen = Feedback(DestinationName("screen"), LogId("log"), Lsn(300), NOW, NOW)
    level = LogState(THREE, {LAKE: a_feedback(300), screen.destination: screen})
    idle = SourceState(Lsn(500), NOW, SlotState(None, Lsn(100), Lsn(50), "reserved"))

    assert held_by(config, SOURCE, level) == ["capture"]
    assert held_by(config, idle, LogState(THREE, {})) == ["capture"]


def test_wal_that_is_acknowledged_is_held_by_nobody(config: Config) -> None:
    quiet = SourceState(Lsn(300), NOW, SlotState(7, Lsn(300), Lsn(50), "reserved"))

    assert held_by(config, quiet, LogState(THREE, {LAKE: a_feedback(300)})) == []


def test_whom_a_snapshot_waits_for_is_told(config: Config) -> None:
    waiting = replace(SOURCE, snapshot_waits=Writers([7, 12], ["order 5"]))

    report = status(config, waiting, LogState(THREE, {}))

    assert report["snapshot"] == {"waits_for_pids": [7, 12], "waits_for_prepared": ["order 5"]}
    assert snapshot_in_words(report["snapshot"]) == (
        "a snapshot waits for open transactions: process 7, process 12, prepared transaction 'order 5'"
    )
    assert status(config, SOURCE, LogState(THREE, {}))["snapshot"] is None


def test_a_source_that_does_not_answer_is_told_and_the_rest_is_shown(config: Config) -> None:
    report = status(config, None, LogState(THREE, {LAKE: a_feedback(300)}))

    assert report["source"] == {"wal_lsn": None, "reachable": False}
    assert report["destinations"]["lake"]["lsn"] == "0/12C"


def test_a_table_that_is_copied_is_behind_though_its_destination_is_not() -> None:
    feedback = a_feedback(300, (ORDERS, Ready(), 200), (EVENTS, DataSync(), 300))

    behind = tables_behind(feedback, Lsn(300), [ORDERS, TableName("public", "new")])

    assert [str(each.table) if isinstance(each, TableReport) else str(each) for each in behind] == [
        "public.new",
        "public.events",
    ]


BOUNDED = AcknowledgeConfig(policy=Policy.BOUNDED, max_wal=1_000)


def a_source(wal: int = 500, confirmed: int = 100, left: int | None = 2_000) -> SourceState:
    """Its limit is 2,000 bytes from here unless told otherwise; the slot keeps WAL from 50 bytes before `confirmed`."""
    slot = SlotState(7, Lsn(confirmed), Lsn(confirmed - 50), "reserved")
    limit = None if left is None else left + wal
    return SourceState(Lsn(wal), NOW, slot, SlotWal(Lsn(wal), wal - confirmed + 50, left, limit))


def both_at(lake: int, screen: int) -> dict[DestinationName, Feedback]:
    silent = Feedback(DestinationName("screen"), LogId("log"), Lsn(screen), NOW, NOW - 900 * SECOND)
    return {LAKE: a_feedback(lake), silent.destination: silent}


def test_the_forecast_tells_growth_limit_and_time(config: Config) -> None:
    log = LogState(THREE, both_at(300, 100))

    slot = status(config, a_source(), log)["slot"]

    assert slot["held_by"] == ["screen"]
    assert slot["wal_growth_bytes_per_second"] == round(400 / 30)
    assert slot["wal_limit_bytes"] == 2_500
    assert slot["wal_left_bytes"] == 2_000
    assert slot["wal_limit_seconds"] == 150
    assert forecast_in_words(slot) == (
        "its WAL grows by 13 B a second; max_slot_wal_keep_size (2.4 kB) would be reached in about 2 m 30 s"
    )


def test_without_a_limit_there_is_growth_and_no_time(config: Config) -> None:
    slot = status(config, a_source(left=None), LogState(THREE, both_at(300, 100)))["slot"]

    assert (slot["wal_growth_bytes_per_second"], slot["wal_limit_bytes"], slot["wal_limit_seconds"]) == (13, None, None)
    assert forecast_in_words(slot) == "its WAL grows by 13 B a second; no max_slot_wal_keep_size bounds it"


def test_a_bound_below_the_limit_keeps_the_limit_out_of_sight(config: Config) -> None:
    log = LogState(THREE, both_at(300, 100), switched=BOUNDED)

    near = status(config, a_source(left=100), log)["slot"]
    far = status(config, a_source(left=2_000), log)["slot"]
    full = status(config, a_source(wal=1_500), log)["slot"]

    assert near["wal_limit_seconds"] == round(100 / (400 / 30))
    assert far["wal_limit_seconds"] is None
    assert far["wal_growth_bytes_per_second"] == 13
    assert (full["wal_growth_bytes_per_second"], full["wal_limit_seconds"]) == (0, None)
    assert forecast_in_words(full).startswith("its WAL does not grow; max_slot_wal_keep_size")


def test_the_policy_in_force_is_shown_and_who_holds_is_told_by_it(config: Config) -> None:
    configured = LogState(THREE, both_at(300, 100))
    kafka = LogState(THREE, both_at(300, 100), switched=AcknowledgeConfig(policy=Policy.KAFKA))
    bounded = LogState(THREE, both_at(300, 100), switched=BOUNDED)

    assert status(config, SOURCE, configured)["acknowledge"] == {
        "policy": "destinations",
        "max_wal_bytes": None,
        "switched": False,
    }
    assert held_by(config, SOURCE, configured) == ["screen"]
    assert held_by(config, SOURCE, kafka) == ["capture"]
    assert policy_in_words(status(config, SOURCE, kafka)["acknowledge"]) == (
        "kafka (switched; `penstock acknowledge configured` takes that back)"
    )
    assert policy_in_words(status(config, SOURCE, bounded)["acknowledge"]).startswith("bounded, at most 1.0KB of WAL (")


def test_a_destination_that_the_slot_has_passed_holds_only_where_there_is_no_other(config: Config) -> None:
    assert held_by(config, a_source(confirmed=200), LogState(THREE, both_at(200, 100))) == ["lake"]
    assert held_by(config, a_source(confirmed=200), LogState(THREE, both_at(150, 100))) == ["screen"]
    assert held_by(config, a_source(confirmed=200), LogState(THREE, {LAKE: a_feedback(200)})) == ["lake"]


def test_a_held_table_says_why_how_often_it_failed_and_when_it_is_tried_again(config: Config) -> None:
    errored = Errored("Somebody has it.", "End that.", Retry.TIMED, 3, Ready(), next_try=NOW + 40 * SECOND)

    report = status(config, SOURCE, LogState(THREE, {LAKE: a_feedback(300, (ORDERS, errored, 200))}))

    table = report["destinations"]["lake"]["tables"]["public.orders"]
    assert (table["phase"], table["reason"], table["solution"]) == ("Errored", "Somebody has it.", "End that.")
    assert (table["attempt"], table["next_try"], table["next_try_seconds"]) == (3, "1970-01-01T00:17:20+00:00", 40)
    assert tries_in_words(table) == "failed 3 times in a row, tried again in 40 s"


def test_a_table_that_only_a_human_can_help_has_no_next_try(config: Config) -> None:
    errored = Errored("why", "what", Retry.MANUAL, 1, Ready())

    report = status(config, SOURCE, LogState(THREE, {LAKE: a_feedback(300, (ORDERS, errored, 200))}))

    table = report["destinations"]["lake"]["tables"]["public.orders"]
    assert (table["next_try"], table["next_try_seconds"]) == (None, None)
    assert tries_in_words(table) == "failed once, waits for somebody"


def test_what_was_skipped_and_that_a_table_is_paused_is_told(config: Config) -> None:
    paused = Errored("Paused.", "Run it.", Retry.MANUAL, 0, Ready())
    report = TableReport(ORDERS, paused, Lsn(200), Lsn(20), 5, paused=True, skipped=(Position(Lsn(150), 2),))
    feedback = replace(a_feedback(300), tables=(report,))

    table = status(config, SOURCE, LogState(THREE, {LAKE: feedback}))["destinations"]["lake"]["tables"]["public.orders"]

    assert (table["paused"], table["skipped"]) == (True, ["0/96/2"])
    assert skipped_in_words(table) == "lacks what was skipped: 0/96/2"
    assert tries_in_words(table) == ""
