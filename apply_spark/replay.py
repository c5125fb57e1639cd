"""Fills a new destination from the topics, up to a place in the log, beside whatever runs. Postgres is not asked.

The destination begins at its end: its progress stands at the target, and every table at the copy that reaches there.
What is left to do is what apply does for a table that is behind: copy it, and catch up. So a replay that was
interrupted goes on like one, and `penstock apply` can take the destination on.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

import structlog
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from apply_spark.commands import first_command_of
from apply_spark.config import ApplyConfig
from apply_spark.decode import decoded_moments, within
from apply_spark.errors import DestinationNotNew, ReplayImpossible, ReplayInterrupted, TablesHeld
from apply_spark.history import History, history, unreached
from apply_spark.intervals import Budget, intervals
from apply_spark.micro_batch import Applier, Parts
from apply_spark.opened import Opened, made_parts, opened, small_topics
from apply_spark.progress import Progress
from apply_spark.reach import log_end, log_of, reach
from apply_spark.read import OffsetRange, checked, raw_records
from apply_spark.replay_target import (
    Numbered,
    Target,
    Window,
    leads_to,
    microseconds,
    moment_text,
    target,
    windows_after,
)
from schemas.identifiers import TableName
from schemas.lsn import NOWHERE, Lsn
from schemas.phases import Errored, Ready
from schemas.topics import Topics
from stores.kafka_errors import TopicMissing
from stores.kafka_log import Record

log = structlog.get_logger(__name__)


class Missing(enum.Enum):
    """What is done about tables that the topics cannot fill."""

    REFUSED = "refused"
    LEFT_OUT = "left out"


def run_replay(
    config: ApplyConfig,
    until: Lsn | datetime | None,
    stop: threading.Event,
    spark: SparkSession | None = None,
    missing: Missing = Missing.REFUSED,
) -> Progress:
    """Returns what the destination holds: every table, or every one that could be filled where that is allowed.

    Raises ReplayImpossible before anything is written where the topics do not hold what is wanted."""
    with opened(config, spark) as here, made_parts(config, here) as parts:
        return _Replay(config, here, parts, stop, missing).fill(until)


class _Replay:
    def __init__(
        self, config: ApplyConfig, here: Opened, parts: Parts, stop: threading.Event, missing: Missing
    ) -> None:
        self._config = config
        self._here = here
        self._parts = parts
        self._stop = stop
        self._missing = missing
        self._topics = Topics(config.pipeline)
        self._end = 0

    def fill(self, until: Lsn | datetime | None) -> Progress:
        told = self._history()
        stored = self._here.stored
        wanted = None if until is None and stored is not None else self._target(told, until)
        begun = self._continued(stored, wanted, told) if stored is not None else self._begun(told, wanted)
        command = first_command_of(self._here.kafka, self._topics.control, stored)
        applier = Applier(self._here.destination, begun, self._parts, command)
        applier.work(self._stop.is_set)
        self._require_level(applier)
        if wanted is not None and wanted.is_cut:
            applier.take_until(self._checkpoint(wanted.log_offset), wanted.lsn)
        return self._ended(applier)

    def _checkpoint(self, offset: int) -> Record:
        record = next(self._here.kafka.read(self._topics.checkpoints, offset, offset + 1), None)
        if record is None:
            raise TopicMissing(f"The checkpoints topic has lost its record {offset}.")
        return record

    def _history(self) -> History:
        told = None
        if small_topics(self._topics) <= self._here.kafka.topics():
            self._end = log_end(self._here.kafka, self._topics)
            told = history(self._log())
        if told is None:
            raise ReplayImpossible(
                f"Pipeline {self._config.pipeline} has no log on this broker.",
                solution="Check `kafka.bootstrap_servers` and `pipeline.name`; or start `penstock capture` first.",
            )
        return told

    def _log(self, told: History | None = None) -> Iterator[Numbered]:
        """What stood in the log when the replay began."""
        return log_of(self._here.kafka, self._topics, self._end, told.log_id if told is not None else None)

    # Where it begins.

    def _begun(self, told: History, wanted: Target | None) -> Progress:
        assert wanted is not None  # noqa: S101 -- only a destination with progress has no target
        showing = self._parts.showing
        found = reach(self._here.kafka, self._topics, told, wanted.lsn).of(showing.selects)
        if found.missing and self._missing is Missing.REFUSED:
            raise _impossible(found.missing, wanted)
        for table, reason in found.missing.items():
            log.warning("table cannot be filled, left out", table=str(table), error=reason)
        left_out = [unreached(table, reason, wanted.log_offset) for table, reason in found.missing.items()]
        begun = wanted.begun([*(copy.begun(wanted.lsn) for copy in found.copies), *left_out])
        begun = replace(begun, showing=showing.told)
        self._here.destination.save_progress(begun)
        log.info(
            "replay begins",
            destination=self._config.name,
            lsn=str(wanted.lsn),
            tables=len(found.copies),
            row_count=sum(table.copy_rows for table in begun.tables.values()),
        )
        return begun

    def _continued(self, stored: Progress, wanted: Target | None, told: History) -> Progress:
        """A replay that was interrupted has tables that are on their way to its end, which is stored with them."""
        name = self._config.name
        if stored.log_id != told.log_id:
            raise DestinationNotNew(f"Destination {name} holds the state of another log: the topics were recreated.")
        if stored.showing != self._parts.showing.told:
            raise DestinationNotNew(f"Destination {name} was filled by another `tables`, `rename` or `columns`.")
        if wanted is not None and not leads_to(stored, wanted, told):
            raise DestinationNotNew(
                f"Destination {name} has progress of its own, up to {stored.lsn}: that is not where this replay "
                f"ends, {wanted.lsn}."
            )
        if wanted is None and all(isinstance(table.phase, Ready | Errored) for table in stored.tables.values()):
            raise DestinationNotNew(f"Destination {name} has progress of its own, up to {stored.lsn}.")
        log.info("replay goes on", destination=name, lsn=str((wanted or stored).lsn))
        return stored

    # Where it ends.

    def _target(self, told: History, until: Lsn | datetime | None) -> Target:
        bound = self._first_after(told, until) if isinstance(until, datetime) else until
        return target(self._log(told), bound)

    def _first_after(self, told: History, moment: datetime) -> Lsn | None:
        """The commit LSN of the first change, in order of commits, that was committed later; None: of none."""
        wanted = microseconds(moment)
        if told.last.commit_ts <= wanted:
            raise ReplayImpossible(
                f"The newest transaction in the log was committed at {moment_text(told.last.commit_ts)}: whether "
                f"others follow before {moment.isoformat(sep=' ')} is not known.",
                solution="Leave --until out: the log holds nothing later. Or wait for a later transaction.",
            )
        passed = -1
        while (window := self._next_window(told, wanted, passed)) is not None:
            found = self._first_in(window, wanted)
            if found is not None:
                return found
            passed = window.offset
        return None

    def _next_window(self, told: History, moment: int, passed: int) -> Window | None:
        windows = windows_after(self._log(told), moment)
        return next((window for window in windows if window.offset > passed), None)

    def _first_in(self, window: Window, moment: int) -> Lsn | None:
        checkpoint = window.checkpoint
        ends = {topic: offsets[0] for topic, offsets in checkpoint.ends.items()}
        ranges = {topic: OffsetRange(start, ends[topic]) for topic, start in window.before.items()}
        raw = raw_records(self._here.spark, self._config.kafka, checked(self._here.kafka, ranges))
        interval = next(intervals([(window.offset, checkpoint)], Budget(1, 1)))
        firsts = [
            within(decoded_moments(raw, moved.topic, self._parts.schemas.get(moved.schema_id)), interval)
            .where(F.col("ts_us") > moment)
            .agg(F.min("commit_lsn").alias("first"))
            .collect()[0]["first"]
            for moved in checkpoint.moved
        ]
        return min((Lsn(first) for first in firsts if first is not None), default=None)

    def _require_level(self, applier: Applier) -> None:
        """That no table is left on its way."""
        progress = applier.progress
        assert progress is not None  # noqa: S101 -- it began with one
        waiting = [
            str(name)
            for name, table in sorted(progress.tables.items())
            if not isinstance(table.phase, Errored) and not (table.moves and table.log_offset == progress.log_offset)
        ]
        if waiting and self._stop.is_set():
            raise ReplayInterrupted(f"The replay into {self._config.name} was told to stop before its end.")
        if waiting:
            raise TablesHeld(f"The log up to {progress.lsn} has no complete copy of {', '.join(waiting)}.")

    def _ended(self, applier: Applier) -> Progress:
        progress = applier.progress
        assert progress is not None  # noqa: S101 -- it began with one
        self._here.destination.save_progress(progress)
        held = [
            f"{table} ({each.phase.reason})"
            for table, each in sorted(progress.tables.items())
            if isinstance(each.phase, Errored) and (each.generation != NOWHERE or self._missing is Missing.REFUSED)
        ]
        if held:
            raise TablesHeld(f"Every table is filled up to {progress.lsn}, except {', '.join(held)}.")
        log.info("replay ended", destination=self._config.name, lsn=str(progress.lsn), tables=len(progress.tables))
        return progress


def _impossible(missing: dict[TableName, str], wanted: Target) -> ReplayImpossible:
    lines = [f"  - {table}: {reason}" for table, reason in missing.items()]
    return ReplayImpossible(
        "\n".join([f"{len(missing)} tables cannot be filled as of {wanted.lsn}; nothing was written:", *lines]),
        solution="Run `penstock resync TABLE` for each, and replay when they are copied, up to a moment after that. "
        "Or leave them out: --allow-missing.",
    )
