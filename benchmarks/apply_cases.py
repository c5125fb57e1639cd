"""Apply from full topics to DuckDB, with no capture beside it: copied rows, changes, and tiny intervals.

What is counted begins with the first progress that the destination told and ends with the last, so that neither the
start of the JVM nor, for changes, the first interval is in it. Where one interval holds most of the rows, what is
counted begins with the process instead, and the figure `from_process_start` says so. `warm` is the second half of the
rows: by then the JVM has compiled what it runs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import psycopg

from benchmarks.limits import measured
from benchmarks.measurement import Measurement
from benchmarks.pipeline import Pipeline
from benchmarks.ratios import percentile
from benchmarks.servers import Servers
from benchmarks.timeline import Timeline, applied, first_at, moving, rows_of
from schemas.checkpoint import Checkpoint
from schemas.identifiers import TableName

_MOST_IN_ONE = 0.6
_TINY_SECONDS = 1.0
_INTERVALS = "penstock_apply_interval_seconds"


def apply_copied_rows(servers: Servers, pipeline: Pipeline, table: TableName, rows: int) -> dict[str, Measurement]:
    began = time.time()
    pipeline.start("apply")
    pipeline.wait_until_ready([table.name])
    points = {
        (each.applied_at / 1e6, float(report.rows_copied))
        for each in pipeline.feedbacks()
        for report in each.tables
        if report.table == table
    }
    timeline, figures = _counted(Timeline(tuple(sorted(points))), rows, began)
    found = {
        "apply/copy": _part(servers, timeline, 0, rows, figures),
        "apply/copy/warm": _part(servers, timeline, rows / 2, rows, figures),
    }
    pipeline.stop("apply")
    return found


def apply_changes(
    servers: Servers, pipeline: Pipeline, checkpoints: Sequence[Checkpoint], segments: Sequence[tuple[str, int]]
) -> dict[str, Measurement]:
    """Changes that lie on the topics; apply is left running. The first three segments are the backlog."""
    began, feedback = time.time(), pipeline.next_feedback()
    pipeline.start("apply")
    pipeline.wait_until_applied(max(each.lsn for each in checkpoints if each.moved))
    total = sum(count for _, count in segments)
    timeline, figures = _counted(applied(checkpoints, pipeline.feedbacks(feedback)), total, began)
    edges = [0, *accumulate(count for _, count in segments)]
    found = {
        "apply/changes": _part(servers, timeline, 0, edges[3], figures),
        "apply/changes/warm": _part(servers, timeline, edges[3] / 2, edges[3], figures),
    }
    for (name, _), (low, high) in zip(segments, pairwise(edges), strict=True):
        if high > timeline.points[0][1]:
            found[f"apply/changes/{name}"] = _part(servers, timeline, low, high, figures)
    return found


def tiny_intervals(
    servers: Servers, pipeline: Pipeline, session: psycopg.Connection, statement: str, count: int, rows: int
) -> Measurement:
    """Transactions of so many rows, a second apart, on a warm apply, while capture runs. `interval`: what apply itself
    took, empty intervals included; `emitted_to_applied`: from capture's checkpoint to the destination's progress,
    waiting included."""
    log, feedback = pipeline.next_checkpoint(), pipeline.next_feedback()
    seconds, number = (pipeline.apply_metric(f"{_INTERVALS}_{kind}") for kind in ("sum", "count"))
    began = time.time()
    for _ in range(count):
        session.execute(statement.encode())
        time.sleep(_TINY_SECONDS)
    checkpoints = [each for each in pipeline.wait_until_captured(count * rows, log) if each.moved]
    pipeline.wait_until_applied(checkpoints[-1].lsn)
    ended = time.time()
    intervals = max(1.0, pipeline.apply_metric(f"{_INTERVALS}_count") - number)
    spent = pipeline.apply_metric(f"{_INTERVALS}_sum") - seconds
    told = pipeline.feedbacks(feedback)
    waited = [(first_at(told, each.lsn) or ended) - each.emitted_at / 1e6 for each in checkpoints]
    return measured(
        servers,
        began,
        ended,
        sum(map(rows_of, checkpoints)),
        interval=spent / intervals,
        emitted_to_applied_p50=percentile(waited, 0.5),
        emitted_to_applied_worst=max(waited),
    )


def _counted(timeline: Timeline, rows: int, began: float) -> tuple[Timeline, Mapping[str, float]]:
    part = moving(timeline)
    if len(part.points) > 1 and part.points[0][1] <= rows * _MOST_IN_ONE:
        return part, {}
    first = next(point for point in timeline.points if point[1] > 0)
    later = [point for point in part.points if point[0] > first[0]]
    return Timeline(((began, 0.0), first, *later)), {"from_process_start": 1.0}


def _part(servers: Servers, timeline: Timeline, low: float, high: float, figures: Mapping[str, float]) -> Measurement:
    """What lies between two amounts, as far as the timeline reaches back."""
    low = max(low, timeline.points[0][1])
    return measured(servers, timeline.when(low), timeline.when(high), round(high - low), **figures)
