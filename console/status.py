"""How far everything is, made only from what Kafka and Postgres say: no stage is asked, so a dead one is seen too.

What is measured:

- `lag_bytes`: the source's WAL position minus the LSN in question. WAL of unpublished tables and of other databases
  counts, so an idle pipeline on a busy server shows the WAL of the last idle interval, never more for long.
- `lag_seconds` of capture: 0 where the last checkpoint is at the WAL position; else the age of what was captured last:
  since the newest commit in the checkpoint, or since its writing where it is an empty one.
- `lag_seconds` of a destination or a table: 0 where it lacks no row; else the time since the oldest checkpoint that it
  lacks and that has rows (of that table) was committed. Exact to one checkpoint interval. Where that checkpoint is
  further back than the `_CHECKPOINTS` newest: the time since the newest commit that the destination has, for a table
  since the oldest checkpoint looked at, which is then a lower bound.
- `rows_on_kafka` of a table that waits for its copy: records on the copy topic so far. Share and time left are known to
  capture alone: its log and its metrics tell them.
- `wal_growth_bytes_per_second`: see console/forecast.py. `wal_limit_seconds`: what is left until
  max_slot_wal_keep_size, divided by it; null where that would never be reached, and where too little was seen yet.
- The clock is the source's, because commit times are; where the source does not answer, this machine's.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

import psycopg

from capture.control import switched_policy
from capture.slot_wal import CAPTURE, SlotWal, read_slot_wal, seconds_to_limit
from capture.waiting import Writers, snapshot_waits
from console.config import Config
from console.forecast import wal_growth
from schemas.acknowledge import AcknowledgeConfig, Policy
from schemas.checkpoint import Checkpoint
from schemas.epochs import EpochRule
from schemas.feedback import Feedback, TableReport
from schemas.identifiers import DestinationName, PipelineName, TableName, slot_name
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
from stores.kafka_log import KafkaLog

_CHECKPOINTS = 1000
_FEEDBACK_STEP = 500
_MICROSECONDS = 1_000_000


@dataclass(frozen=True)
class SlotState:
    """The slot as Postgres shows it."""

    active_pid: int | None
    confirmed_flush_lsn: Lsn | None
    restart_lsn: Lsn | None
    wal_status: str | None


@dataclass(frozen=True)
class SourceState:
    """Where the source's WAL ends, and its slot."""

    wal_lsn: Lsn
    now: int
    """Microseconds since 1970, by the source's clock."""
    slot: SlotState | None
    slot_wal: SlotWal | None = None
    snapshot_waits: Writers | None = None
    """Whom the snapshot of a copy waits for; None where none is waited for."""


@dataclass(frozen=True)
class LogState:
    """What the small topics say: accepted checkpoints, oldest first, and the newest feedback of each destination."""

    checkpoints: tuple[Checkpoint, ...]
    feedback: dict[DestinationName, Feedback]
    recent: tuple[Feedback, ...] = ()
    """The last few hundred of all destinations, oldest first."""
    switched: AcknowledgeConfig | None = None
    """The policy that an operator switched to; None: the configured one is in force."""
    copied: Mapping[str, int] = field(default_factory=dict)
    """How many records the copy topics have that destinations wait for."""

    @property
    def last(self) -> Checkpoint | None:
        return self.checkpoints[-1] if self.checkpoints else None


def read_source(connection: psycopg.Connection[dict[str, Any]], pipeline: PipelineName) -> SourceState:
    """One look at Postgres. The WAL position is read first, so no slot is seen ahead of it."""
    row = connection.execute(
        "select (case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end)::text "
        "as wal, (extract(epoch from clock_timestamp()) * 1000000)::bigint as now"
    ).fetchone()
    assert row is not None  # noqa: S101 -- a select without from has one row
    slot = connection.execute(
        "select active_pid, confirmed_flush_lsn::text as confirmed, restart_lsn::text as restart, wal_status "
        "from pg_replication_slots where slot_name = %s",
        (slot_name(pipeline),),
    ).fetchone()
    return SourceState(
        wal_lsn=Lsn.parse(row["wal"]),
        now=row["now"],
        slot=None
        if slot is None
        else SlotState(slot["active_pid"], _lsn(slot["confirmed"]), _lsn(slot["restart"]), slot["wal_status"]),
        slot_wal=read_slot_wal(connection, slot_name(pipeline)),
        snapshot_waits=snapshot_waits(connection, pipeline),
    )


def read_log(log: KafkaLog, pipeline: PipelineName, wanted: Iterable[DestinationName]) -> LogState:
    """The small topics; empty where capture has not made them yet."""
    topics = Topics(pipeline)
    present = log.topics()
    if topics.checkpoints not in present:
        return LogState((), {})
    records = log.last(topics.checkpoints, _CHECKPOINTS)
    checkpoints = accepted([Checkpoint.decode(record.value) for record in records if record.value is not None])
    newest, recent = _heard(log, pipeline, wanted)
    done = checkpoints[-1].control if checkpoints and topics.control in present else 0
    awaited = {
        topics.copy(report.table, report.generation)
        for feedback in newest.values()
        for report in feedback.tables
        if isinstance(report.phase, Init)
    }
    copied = {topic: ends[0] for topic, ends in log.ends(awaited & present).items()}
    return LogState(tuple(checkpoints), newest, recent, switched_policy(log, topics.control, done), copied)


def accepted(checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
    """The checkpoints by the epoch rule: after an opening, those of other epochs are a zombie's."""
    rule = EpochRule()
    return [checkpoint for checkpoint in checkpoints if rule.accepts(checkpoint)]


def read_feedback(
    log: KafkaLog, pipeline: PipelineName, wanted: Iterable[DestinationName]
) -> dict[DestinationName, Feedback]:
    """The newest feedback of each destination: read from the end backwards, until all that are wanted have shown up."""
    return _heard(log, pipeline, wanted)[0]


def _heard(
    log: KafkaLog, pipeline: PipelineName, wanted: Iterable[DestinationName]
) -> tuple[dict[DestinationName, Feedback], tuple[Feedback, ...]]:
    """The newest feedback of each destination, and the last few hundred of all."""
    topic = Topics(pipeline).feedback
    missing = set(wanted)
    found: dict[DestinationName, Feedback] = {}
    recent: tuple[Feedback, ...] = ()
    if topic not in log.topics():
        return {}, ()
    begin, end = log.begins([topic])[topic][0], log.ends([topic])[topic][0]
    step = _FEEDBACK_STEP
    while begin < end and (missing or not found):
        start = max(begin, end - step)
        read = [Feedback.decode(record.value) for record in log.read(topic, start, end) if record.value is not None]
        recent = recent or tuple(read)
        found = {feedback.destination: feedback for feedback in read} | found
        missing -= found.keys()
        end, step = start, step * 4
    return found, recent


def status(config: Config, source: SourceState | None, log: LogState) -> dict[str, Any]:
    """The whole report, ready for JSON; LSNs as Postgres prints them."""
    last = log.last
    wal = source.wal_lsn if source is not None else None
    now = source.now if source is not None else time.time_ns() // 1000
    names = [*config.destinations, *(name for name in log.feedback if name not in config.destinations)]
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
        "destinations": {name: _destination(config, log, name, wal, now) for name in names},
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
    if in_force(config, log).policy is Policy.KAFKA or not config.destinations:
        return [CAPTURE]
    lsns = {name: each.lsn if (each := _current(log, name)) is not None else NOWHERE for name in config.destinations}
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


def _destination(config: Config, log: LogState, name: DestinationName, wal: Lsn | None, now: int) -> dict[str, Any]:
    feedback = _current(log, name)
    if feedback is None:
        return {"lsn": None, "lag_bytes": None, "lag_seconds": None, "tables": {}}
    topics = Topics(config.pipeline)
    return {
        "lsn": str(feedback.lsn),
        "lag_bytes": _behind(wal, feedback.lsn),
        "lag_seconds": _destination_seconds(feedback, log, now),
        "tables": {
            str(report.table): _table(report, topics, log, wal, now)
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
        "rows_on_kafka": log.copied.get(topics.copy(report.table, report.generation)),
        "position": str(report.lsn),
        "generation": str(report.generation),
        "lag_bytes": _behind(wal, report.lsn) if started else None,
        "lag_seconds": _table_seconds(report.lsn, topic, log, now) if started else None,
        "reason": errored.reason if errored is not None else None,
        "solution": errored.solution if errored is not None else None,
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
    return len(log.checkpoints) >= _CHECKPOINTS and lsn < log.checkpoints[0].start


def _age(moment: int, now: int) -> float:
    return round(max(0, now - moment) / _MICROSECONDS, 3)


def _behind(wal: Lsn | None, lsn: Lsn | None) -> int | None:
    return max(0, wal - lsn) if wal is not None and lsn is not None else None


def _lsn(text: str | None) -> Lsn | None:
    return Lsn.parse(text) if text is not None else None


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
