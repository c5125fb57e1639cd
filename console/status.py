"""How far everything is, made only from what Kafka and Postgres say: no stage is asked, so a dead one is seen too.

What is measured:

- `lag_bytes`: the source's WAL position minus the LSN in question. WAL of unpublished tables and of other databases
  counts, so an idle pipeline on a busy server shows the WAL of the last idle interval, never more for long.
- `lag_seconds` of capture: 0 where the last checkpoint is at the WAL position; else the age of what was captured last:
  since the newest commit in the checkpoint, or since its writing where it is an empty one.
- `lag_seconds` of a destination or a table: 0 where it lacks no row; else the time since the oldest checkpoint that it
  lacks and that has rows (of that table) was committed. Exact to one checkpoint interval. Where that checkpoint is
  further back than the `CHECKPOINTS` newest: the time since the newest commit that the destination has, for a table
  since the oldest checkpoint looked at, which is then a lower bound.
- `rows_on_kafka` of a table that waits for its copy: records on the copy topic so far. `copy_share` and
  `copy_seconds_left` of a copy that is under way: see console/copy_progress.py.
- `attempt` of a table that is held: how often in a row it has failed; 0 where it is only paused. `next_try`: when apply
  tries it again, by the clock of its host; null where it waits for a human.
- `wal_growth_bytes_per_second`: see console/forecast.py. `wal_limit_seconds`: what is left until
  max_slot_wal_keep_size, divided by it; null where that would never be reached, and where too little was seen yet.
- `replay`: from where on `penstock replay` can have every table that it can have, and each: see
  console/replayable.py.
- The clock is the source's, because commit times are; where the source does not answer, this machine's.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, assert_never

from capture.slot_wal import CAPTURE, seconds_to_limit
from console.config import Config
from console.copy_progress import CopyProgress, to_destination, to_kafka
from console.forecast import wal_growth
from console.pipeline_state import CHECKPOINTS, LogState, SourceState
from console.replayable import replay_report
from schemas.acknowledge import AcknowledgeConfig, Policy
from schemas.checkpoint import Checkpoint
from schemas.feedback import Feedback, TableReport
from schemas.identifiers import DestinationName, TableName, slot_name
from schemas.lsn import NOWHERE, Lsn
from schemas.phases import (
    Catchup,
    DataSync,
    Errored,
    FinishedCopy,
    Init,
    Phase,
    Ready,
    SyncDone,
    SyncWait,
)
from schemas.topics import Topics

_MICROSECONDS = 1_000_000


def status(config: Config, source: SourceState | None, log: LogState) -> dict[str, Any]:
    """The whole report, ready for JSON; LSNs as Postgres prints them."""
    last = log.last
    wal = source.wal_lsn if source is not None else None
    now = source.now if source is not None else time.time_ns() // 1000
    names = [*config.live_destinations, *(name for name in log.feedback if name not in config.live_destinations)]
    return {
        "pipeline": config.pipeline,
        "log_id": last.log_id if last is not None else None,
        "source": {"wal_lsn": _text(wal), "reachable": source is not None},
        "acknowledge": _acknowledge(config, log),
        "slot": _slot(config, source, log),
        "snapshot": _snapshot(source),
        "capture": {
            "checkpoint_lsn": _text(last.lsn if last is not None else None),
            "lag_bytes": _behind(wal, last.lsn if last is not None else None),
            "lag_seconds": _capture_seconds(last, wal, now),
        },
        "replay": replay_report(log.replayable),
        "destinations": {name: _destination(config, source, log, name, now) for name in names},
    }


def _snapshot(source: SourceState | None) -> dict[str, Any] | None:
    """Whom the snapshot of a copy waits for; null where none is waited for."""
    waits = source.snapshot_waits if source is not None else None
    return {"waits_for_pids": waits.pids, "waits_for_prepared": waits.prepared} if waits is not None else None


def _slot(config: Config, source: SourceState | None, log: LogState) -> dict[str, Any]:
    slot = source.slot if source is not None else None
    wal = source.slot_wal if source is not None else None
    held = _behind(source.wal_lsn, slot.restart_lsn) if source is not None and slot is not None else None
    holders = held_by(config, source, log) if source is not None and held else []
    growth, seconds = _forecast(config, source, log, holders, held)
    return {
        "name": slot_name(config.pipeline),
        "active": slot is not None and slot.active_pid is not None,
        "active_pid": slot.active_pid if slot is not None else None,
        "confirmed_flush_lsn": _text(slot.confirmed_flush_lsn if slot is not None else None),
        "restart_lsn": _text(slot.restart_lsn if slot is not None else None),
        "wal_held_bytes": held,
        "wal_status": slot.wal_status if slot is not None else None,
        "held_by": holders,
        "wal_growth_bytes_per_second": round(growth) if growth is not None else None,
        "wal_limit_bytes": wal.limit if wal is not None else None,
        "wal_left_bytes": wal.left if wal is not None else None,
        "wal_limit_seconds": round(seconds) if seconds is not None else None,
    }


def _forecast(
    config: Config, source: SourceState | None, log: LogState, holders: list[str], held: int | None
) -> tuple[float | None, float | None]:
    """How fast the slot's WAL grows, and in how many seconds the server's limit is reached; None: never, or unknown.

    What is kept for destinations grows to `max_wal` at most, where there is one."""
    if source is None or source.slot_wal is None:
        return None, None
    left = source.slot_wal.left
    growth = wal_growth(source.wal_lsn, source.now, log.checkpoints, log.recent, holders)
    max_wal = in_force(config, log).max_wal
    if max_wal is not None and growth is not None and held is not None and CAPTURE not in holders:
        room = max_wal - held
        growth = growth if room > 0 else min(growth, 0.0)
        if left is not None and left > room:
            return growth, None
    return growth, seconds_to_limit(left, growth)


def held_by(config: Config, source: SourceState, log: LogState) -> list[str]:
    """Who keeps WAL from going: the destinations furthest behind; capture, where none is behind it or it does not run.

    A destination below what the slot has let go does not hold, unless there is no other: then WAL is kept for it up to
    a bound. One that has sent no feedback in this log holds, unless the slot has moved on without it. Nobody, where all
    WAL is acknowledged: what is still there, Postgres itself keeps for transactions that are open."""
    last, slot = log.last, source.slot
    if last is None or slot is None or slot.active_pid is None:
        return [CAPTURE]
    confirmed = slot.confirmed_flush_lsn or NOWHERE
    if confirmed >= source.wal_lsn:
        return []
    if in_force(config, log).policy is Policy.KAFKA or not config.live_destinations:
        return [CAPTURE]
    lsns = {
        name: each.lsn if (each := _current(log, name)) is not None else NOWHERE for name in config.live_destinations
    }
    level = {name: lsn for name, lsn in lsns.items() if lsn >= confirmed}
    unheard = {name: lsn for name, lsn in lsns.items() if lsn == NOWHERE}
    moved_without = min(level.values(), default=NOWHERE) == confirmed
    holding = (level if moved_without or not unheard else unheard) or lsns
    furthest = min(holding.values())
    if furthest >= last.lsn:
        return [CAPTURE]
    return [name for name, lsn in holding.items() if lsn == furthest]


def in_force(config: Config, log: LogState) -> AcknowledgeConfig:
    """The policy by which WAL goes now, as far as capture has told."""
    return log.switched or config.settings.acknowledge


def _acknowledge(config: Config, log: LogState) -> dict[str, Any]:
    policy = in_force(config, log)
    return {
        "policy": policy.policy.value,
        "max_wal_bytes": policy.max_wal,
        "switched": log.switched is not None,
    }


def _current(log: LogState, name: DestinationName) -> Feedback | None:
    """The destination's feedback, unless it speaks of topics that were recreated since."""
    feedback = log.feedback.get(name)
    if feedback is None or log.last is None or feedback.log_id != log.last.log_id:
        return None
    return feedback


def _destination(
    config: Config, source: SourceState | None, log: LogState, name: DestinationName, now: int
) -> dict[str, Any]:
    feedback = _current(log, name)
    wal = source.wal_lsn if source is not None else None
    if feedback is None:
        return {"lsn": None, "lag_bytes": None, "lag_seconds": None, "tables": {}}
    topics = Topics(config.pipeline)
    return {
        "lsn": str(feedback.lsn),
        "lag_bytes": _behind(wal, feedback.lsn),
        "lag_seconds": _destination_seconds(feedback, log, now),
        "tables": {
            str(report.table): _table(report, topics, log, wal, now) | _copy(name, report, topics, source, log, now)
            for report in sorted(feedback.tables, key=lambda report: report.table)
        },
    }


def _table(report: TableReport, topics: Topics, log: LogState, wal: Lsn | None, now: int) -> dict[str, Any]:
    topic = topics.changes(report.table)
    errored = report.phase if isinstance(report.phase, Errored) else None
    # Before the copy is applied there are no rows that could be late.
    started = not isinstance(report.phase, Init | DataSync)
    return {
        "phase": type(report.phase).__name__,
        "rows_copied": report.rows_copied,
        "position": str(report.lsn),
        "generation": str(report.generation),
        "lag_bytes": _behind(wal, report.lsn) if started else None,
        "lag_seconds": _table_seconds(report.lsn, topic, log, now) if started else None,
        "reason": errored.reason if errored is not None else None,
        "solution": errored.solution if errored is not None else None,
        "attempt": errored.attempt if errored is not None else None,
        "next_try": _moment(errored.next_try if errored is not None else None),
        "next_try_seconds": _left(errored.next_try if errored is not None else None, now),
        "paused": report.paused,
        "skipped": [str(position) for position in report.skipped],
    }


def _copy(
    name: DestinationName, report: TableReport, topics: Topics, source: SourceState | None, log: LogState, now: int
) -> dict[str, Any]:
    topic = log.copied.get(topics.copy(report.table, report.generation))
    progress = CopyProgress(None, None)
    waits = isinstance(report.phase, Init)
    if topic is not None and waits:
        expected = source.expected_rows.get(report.table) if source is not None else None
        progress = to_kafka(topic, expected, now)
    elif topic is not None and isinstance(report.phase, DataSync):
        progress = to_destination(report, topic, name, log.recent, now)
    return {
        "rows_on_kafka": topic.records if topic is not None and waits else None,
        "copy_share": progress.share,
        "copy_seconds_left": progress.seconds_left,
    }


def _capture_seconds(last: Checkpoint | None, wal: Lsn | None, now: int) -> float | None:
    if last is None:
        return None
    if wal is not None and last.lsn >= wal:
        return 0.0
    return _age(last.commit_ts if last.moved else last.emitted_at, now)


def _destination_seconds(feedback: Feedback, log: LogState, now: int) -> float:
    if _out_of_sight(feedback.lsn, log):
        return _age(feedback.commit_ts, now)
    lacking = [each for each in log.checkpoints if each.lsn > feedback.lsn and each.moved]
    return _age(lacking[0].commit_ts, now) if lacking else 0.0


def _table_seconds(lsn: Lsn, topic: str, log: LogState, now: int) -> float:
    if _out_of_sight(lsn, log):
        return _age(log.checkpoints[0].commit_ts, now)
    lacking = [each for each in log.checkpoints if each.lsn > lsn and any(moved.topic == topic for moved in each.moved)]
    return _age(lacking[0].commit_ts, now) if lacking else 0.0


def _out_of_sight(lsn: Lsn, log: LogState) -> bool:
    """Whether checkpoints after `lsn` are older than those that were read."""
    return len(log.checkpoints) >= CHECKPOINTS and lsn < log.checkpoints[0].start


def _age(moment: int, now: int) -> float:
    return round(max(0, now - moment) / _MICROSECONDS, 3)


def _left(moment: int | None, now: int) -> float | None:
    return None if moment is None else round(max(0, moment - now) / _MICROSECONDS, 3)


def _moment(microseconds: int | None) -> str | None:
    if microseconds is None:
        return None
    return datetime.fromtimestamp(microseconds / _MICROSECONDS, UTC).isoformat(timespec="seconds")


def _behind(wal: Lsn | None, lsn: Lsn | None) -> int | None:
    return max(0, wal - lsn) if wal is not None and lsn is not None else None


def _text(lsn: Lsn | None) -> str | None:
    return str(lsn) if lsn is not None else None


def tables_behind(feedback: Feedback, lsn: Lsn, expected: Iterable[TableName] = ()) -> list[TableReport | TableName]:
    """The tables that do not have everything before `lsn` yet; a bare name where the destination does not know it.

    A table that is Ready stands where its destination stands; before SyncDone its rows are not whole at any LSN."""
    reports = {report.table: report for report in feedback.tables}
    unknown: list[TableReport | TableName] = [name for name in expected if name not in reports]
    if feedback.lsn < lsn:
        return [*unknown, *reports.values()]
    return [*unknown, *(report for report in reports.values() if not _has_all(report.phase, lsn))]


def _has_all(phase: Phase, lsn: Lsn) -> bool:
    match phase:
        case Ready():
            return True
        case SyncDone(lsn=caught_up_to):
            return caught_up_to >= lsn
        case Init() | DataSync() | FinishedCopy() | SyncWait() | Catchup() | Errored():
            return False
        case _:
            assert_never(phase)
