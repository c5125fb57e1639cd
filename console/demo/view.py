"""What happens in the demo, as it happens: a live table on a terminal, a line every two seconds elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from console.config import Config
from console.demo.lake import row_counts
from console.demo.shop import TABLES
from console.output import human_bytes, human_duration, table
from console.pipeline_state import read_log, read_source
from console.status import status
from schemas.identifiers import DestinationName, TableName
from stores.kafka_log import KafkaLog

_LIVE_SECONDS = 1.0
_PLAIN_SECONDS = 2.0
_FIRST_ROWS_SECONDS = 0.5
_LAKE_SECONDS = 0.3


@dataclass(frozen=True)
class Scene:
    """One look at everything."""

    elapsed: float
    doing: str
    report: dict[str, Any]
    source_rows: dict[TableName, int]
    lake_rows: dict[TableName, int | None]
    happened: Counter[str]


class Observer:
    """Looks at source, topics and lake. Not safe for several threads."""

    def __init__(
        self,
        config: Config,
        destination: DestinationName,
        lake: Path,
        *,
        source: psycopg.Connection[dict[str, Any]],
        log: KafkaLog,
        began: float,
    ) -> None:
        self._config = config
        self._destination = destination
        self._lake = lake
        self._source = source
        self._log = log
        self._began = began

    def look(self, doing: str, happened: Counter[str]) -> Scene:
        said = read_log(self._log, self._config.pipeline, [self._destination])
        report = status(self._config, read_source(self._source, self._config, said.copying), said)
        return Scene(
            elapsed=self.elapsed(),
            doing=doing,
            report=report,
            source_rows={each: self._count(each) for each in TABLES},
            lake_rows=self.lake_rows(),
            happened=happened,
        )

    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def lake_rows(self) -> dict[TableName, int | None]:
        return row_counts(self._lake, TABLES, _LAKE_SECONDS) if self._lake.exists() else dict.fromkeys(TABLES)

    def _count(self, name: TableName) -> int:
        query = sql.SQL("select count(*) as rows from {}").format(sql.Identifier(*name))
        row = self._source.execute(query).fetchone()
        assert row is not None  # noqa: S101 -- count(*) has one row
        return int(row["rows"])


class View:
    """Shows scenes, at most one in its interval, and tells once when the first rows have arrived."""

    def __init__(self, out: Console, observer: Observer, destination: DestinationName, live: Live | None) -> None:
        self._out = out
        self._observer = observer
        self._destination = destination
        self._live = live
        self._interval = _PLAIN_SECONDS if live is None else _LIVE_SECONDS
        self._next = 0.0
        self._next_for_rows = 0.0
        self._rows_seen = False

    def show(self, doing: str, happened: Counter[str]) -> None:
        if not self._rows_seen and time.monotonic() >= self._next_for_rows:
            self._next_for_rows = time.monotonic() + _FIRST_ROWS_SECONDS
            self._rows_seen = any(self._observer.lake_rows().values())
            if self._rows_seen:
                after = self._observer.elapsed()
                self._out.print(f"first copied rows are visible in DuckDB after {after:.1f} s", style="bold green")
        if time.monotonic() < self._next:
            return
        scene = self._observer.look(doing, happened)
        self._next = time.monotonic() + self._interval
        if self._live is None:
            self._out.print(_line(scene, self._destination))
        else:
            self._live.update(_picture(scene, self._destination))


@contextmanager
def viewing(out: Console, observer: Observer, destination: DestinationName) -> Iterator[View]:
    """A view that fits the console."""
    if not out.is_terminal:
        yield View(out, observer, destination, None)
        return
    with Live(console=out, auto_refresh=True, refresh_per_second=2, transient=True) as live:
        yield View(live.console, observer, destination, live)


def _line(scene: Scene, destination: DestinationName) -> str:
    facts = scene.report["destinations"][destination]
    ready = sum(each["phase"] == "Ready" for each in facts["tables"].values())
    lake = sum(count or 0 for count in scene.lake_rows.values())
    return (
        f"{scene.elapsed:6.1f} s  {scene.doing}: {scene.happened.total()} transactions; "
        f"rows {sum(scene.source_rows.values())} at the source, {lake} in DuckDB; "
        f"{ready} of {len(TABLES)} tables ready; "
        f"lag capture {human_bytes(scene.report['capture']['lag_bytes'])}, "
        f"{destination} {human_bytes(facts['lag_bytes'])} / {human_duration(facts['lag_seconds'])}"
    )


def _picture(scene: Scene, destination: DestinationName) -> RenderableType:
    report = scene.report
    facts = report["destinations"][destination]
    shop = table("table", "phase", "rows at source", "rows in DuckDB", "lag", "age", right=_NUMBERS)
    for name in TABLES:
        each = facts["tables"].get(str(name), {})
        in_lake = scene.lake_rows[name]
        shop.add_row(
            str(name),
            each.get("phase", "-"),
            f"{scene.source_rows[name]:,}",
            "-" if in_lake is None else f"{in_lake:,}",
            human_bytes(each.get("lag_bytes")),
            human_duration(each.get("lag_seconds")),
        )
    stages = table("stage", "at", "lag", "age", right=_NUMBERS)
    stages.add_row("Postgres", report["source"]["wal_lsn"] or "-", "", "")
    stages.add_row("capture, Kafka", *_stage(report["capture"], "checkpoint_lsn"))
    stages.add_row("apply, DuckDB", *_stage(facts, "lsn"))
    slot = report["slot"]
    held = f"WAL held by the slot: {human_bytes(slot['wal_held_bytes'])} ({', '.join(slot['held_by']) or 'nobody'})"
    lived = ", ".join(f"{count} {name}" for name, count in scene.happened.most_common(6))
    head = f"penstock demo, {scene.elapsed:.0f} s: {scene.doing}, {scene.happened.total()} transactions"
    return Group(Text(head, style="bold"), Text(lived, style="dim"), Text(), shop, Text(), stages, Text(held))


_NUMBERS = ("rows at source", "rows in DuckDB", "lag", "age")


def _stage(facts: dict[str, Any], lsn: str) -> tuple[str, str, str]:
    return facts[lsn] or "-", human_bytes(facts["lag_bytes"]), human_duration(facts["lag_seconds"])
