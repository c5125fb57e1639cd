"""What the markers of a checkpoint do to the progress of their tables."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

import structlog

from apply_spark.intervals import Interval
from apply_spark.progress import Progress, ShapeAhead, TableProgress
from schemas.checkpoint import CopyFinished, CopyStarted, SchemaChanged, TableErrored, TableRemoved
from schemas.errors import Retry
from schemas.identifiers import Epoch, SchemaId, TableName
from schemas.lsn import NOWHERE
from schemas.phases import Errored, Init

log = structlog.get_logger(__name__)


def marked(progress: Progress, interval: Interval, level: set[TableName]) -> Progress:
    """The progress with the interval's markers taken in, before any of its rows. A table that begins anew, or is held,
    is no longer level with the others, and leaves `level`.

    A table that stands past the interval took them in with its rows, before a crash that kept the others from it."""
    tables = dict(progress.tables)
    past = {name for name, table in tables.items() if table.log_offset >= interval.next_offset}
    for marker in interval.markers:
        if marker.table in past:
            continue
        table = tables.get(marker.table)
        match marker:
            case CopyStarted():
                new = begun(marker, interval.epoch)
                if table is not None:
                    new = replace(new, paused=table.paused, mirrored=held_shape(table))
                tables[marker.table] = new
                level.discard(marker.table)
            case CopyFinished(generation=generation, rows=rows, bytes=size, ends=ends, last=last):
                if table is not None and table.generation == generation:
                    tables[marker.table] = replace(
                        table, copy_end=ends[0], copy_rows=rows, copy_bytes=size, last_snapshot=last
                    )
            case SchemaChanged(position=position, schema_id=schema_id, rewrite=False):
                if table is not None and position.commit_lsn >= table.generation:
                    ahead = ShapeAhead(position, schema_id)
                    tables[marker.table] = replace(table, ahead=(*table.ahead, ahead))
            case SchemaChanged(position=position):
                if table is not None and position.commit_lsn >= table.generation:
                    log.warning("table changed its shape, waiting for a new copy", table=str(marker.table))
                    # Of no generation: the end of the old copy may still be told, and would begin what is outdated.
                    tables[marker.table] = replace(_anew(table), phase=Init())
                    level.discard(marker.table)
            case TableErrored(position=position, reason=reason, solution=solution):
                if table is not None and position.commit_lsn >= table.generation:
                    log.error("table stopped by capture", table=str(marker.table), error=reason, solution=solution)
                    # Of no generation either: nothing but a new copy brings back what capture left out.
                    stopped = Errored(reason, solution, Retry.MANUAL, 1, Init())
                    tables[marker.table] = replace(_anew(table), phase=stopped)
                    level.discard(marker.table)
            case TableRemoved():
                log.info("table left the publication", table=str(marker.table))
                tables.pop(marker.table, None)
                level.discard(marker.table)
            case _:
                assert_never(marker)
    return replace(progress, tables=tables)


def _anew(table: TableProgress) -> TableProgress:
    return replace(table, generation=NOWHERE, copy_end=None, mirrored=held_shape(table))


def held_shape(table: TableProgress) -> SchemaId | None:
    """The shape that the destination holds of it; None: it holds nothing."""
    phase = table.phase.held if isinstance(table.phase, Errored) else table.phase
    return table.schema_id if table.mirrored is None and not isinstance(phase, Init) else table.mirrored


def begun(marker: CopyStarted, epoch: Epoch) -> TableProgress:
    """A new generation. What the destination holds of the table stays until the copy is complete on Kafka."""
    return TableProgress(
        table=marker.table,
        phase=Init(),
        generation=marker.generation,
        schema_id=marker.schema_id,
        lsn=marker.generation,
        epoch=epoch,
        log_offset=marker.log_from,
        topic_offset=marker.changes_from,
        last_snapshot=marker.generation,
    )
