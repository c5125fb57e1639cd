"""What is stored, as the configuration of now wants it: tables that leave, tables that join, tables shown otherwise.

A copy is announced by markers at one place in the log, and a destination that did not want the table then has passed
them. So the log is read again, up to where the destination stands, and its markers are taken in for the tables that
join: they are then where they would be had they waited since. Their copy is applied if it is still on the topics; if
not, that is found when it is read, and the table is held with `penstock resync` as its solution.

A table that is shown otherwise (another name, another treatment of a column, another salt) is begun anew in this way,
too: what its mirror holds is of no use. A table that leaves is forgotten; its mirror stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import structlog

from apply_spark.history import history, unreached
from apply_spark.intervals import Budget, intervals
from apply_spark.markers import held_shape, marked
from apply_spark.new_shapes import ignored, shape_of_mirror
from apply_spark.progress import Progress, TableProgress
from apply_spark.reach import log_of, without_copies
from apply_spark.showing import Showing
from schemas.identifiers import SchemaId, TableName
from schemas.phases import Errored, Init
from schemas.table import TableSchema
from schemas.topics import Topics
from stores.kafka_log import KafkaLog

log = structlog.get_logger(__name__)


def adapted(
    stored: Progress, showing: Showing, shape: Callable[[SchemaId], TableSchema], kafka: KafkaLog, topics: Topics
) -> Progress:
    """The same object where nothing is to be done. The log of the destination must be the one on the topics."""
    before = Showing.remembered(stored.showing)
    kept: dict[TableName, TableProgress] = {}
    for name, table in stored.tables.items():
        if not showing.selects(name):
            log.info("table is not selected any more, forgotten", table=str(name))
        elif not _is_shown_so(table, before, showing, shape):
            log.warning("table is to be shown otherwise, beginning anew", table=str(name))
        else:
            kept[name] = table if ignored(showing, name) or not _has_mirror(table) else replace(table, mirrored=None)
    if stored.showing == showing.told and len(kept) == len(stored.tables):
        return stored if kept == stored.tables else replace(stored, tables=kept)
    joined = _joined(stored, kafka, topics, lambda table: showing.selects(table) and table not in kept)
    for name, known in stored.tables.items():
        if showing.selects(name) and name not in kept:
            anew = joined.get(name) or unreached(name, "No copy of it is left in the log.", stored.log_offset)
            joined[name] = replace(anew, paused=known.paused, mirrored=held_shape(known))
    for name, table in joined.items():
        log.info("table joins", table=str(name), generation=str(table.generation), phase=type(table.phase).__name__)
    return replace(stored, tables={**kept, **joined}, showing=showing.told)


def _is_shown_so(table: TableProgress, before: Showing, now: Showing, shape: Callable[[SchemaId], TableSchema]) -> bool:
    """Whether its mirror is what the configuration says, or would be."""
    if table.schema_id == 0:  # nothing but a name is known of it
        return True
    if _has_mirror(table) and table.mirrored not in (None, table.schema_id) and not ignored(now, table.table):
        return False
    mirror = shape(shape_of_mirror(table))
    return before.look(mirror) == now.look(mirror)


def _has_mirror(table: TableProgress) -> bool:
    """Whether it has begun to be written, in its generation."""
    phase = table.phase.held if isinstance(table.phase, Errored) else table.phase
    return not isinstance(phase, Init)


def _joined(
    stored: Progress, kafka: KafkaLog, topics: Topics, wanted: Callable[[TableName], bool]
) -> dict[TableName, TableProgress]:
    """The tables of the log that are wanted, where the markers left them."""
    found = Progress.fresh(stored.log_id)
    for offset, checkpoint in log_of(kafka, topics, stored.log_offset, stored.log_id):
        markers = tuple(marker for marker in checkpoint.markers if wanted(marker.table))
        if markers:
            (interval,) = intervals([(offset, replace(checkpoint, markers=markers))], Budget(1, 1))
            found = marked(found, interval, set())
    is_whole = kafka.begins([topics.checkpoints])[topics.checkpoints][0] == 0
    told = None if is_whole else history(log_of(kafka, topics, stored.log_offset, stored.log_id))
    reasons = without_copies(kafka, topics, told) if told is not None else {}
    lost = {
        table: unreached(table, reason, stored.log_offset)
        for table, reason in reasons.items()
        if wanted(table) and table not in found.tables
    }
    return {**found.tables, **lost}
