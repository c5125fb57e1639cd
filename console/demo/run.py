"""The demo from start to proof. Returns only if every table was proven equal; raises what went wrong otherwise."""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
from psycopg import sql
from rich.console import Console

from capture.preflight import connect
from console.commands.run import start_stages
from console.config import Config, load
from console.demo import shop
from console.demo.proof import TableProof, prove
from console.demo.view import Observer, View, viewing
from console.demo.workload import Workload
from console.environment import LOG_FORMAT, PREFIX, RESERVED, log_format
from console.errors import NotEqual
from console.local_stack.processes import ServerProcess
from console.local_stack.spark import spark_runtime
from console.local_stack.stack import LocalStack, local_stack
from console.logs import LogFormat, LogLevel, set_up_logs
from console.output import stdout, table
from console.signals import stop_on_signals
from console.stages import Stages
from console.waiting import Held, wait_until_there
from schemas.errors import ConfigError, PenstockError
from schemas.identifiers import DestinationName
from schemas.lsn import Lsn
from stores.kafka_log import KafkaLog

LAKE = DestinationName("lake")
_LOOK_SECONDS = 0.1
_CATCH_UP_SECONDS = 300.0
_LAST_LINES = 15


def run_demo(seconds: float | None, keep: Path | None, seed: int) -> None:
    began = time.monotonic()
    set_up_logs(log_format(os.environ), LogLevel.WARNING)
    out = stdout()
    with ExitStack() as running:
        folder = running.enter_context(_folder(keep))
        stages = Stages(_environment(), folder / "logs")
        stop = running.enter_context(stop_on_signals(at_once=stages.kill))
        out.print("starting Postgres and Kafka (the first time they are downloaded) ...")
        stack = running.enter_context(local_stack(data_dir=None if keep is None else folder / "servers"))
        spark_runtime()  # here, so that a download is not mistaken for a slow start
        config = _open_shop(stack, folder, seed)
        out.print(
            f"shop opened with {len(shop.TABLES)} tables after {time.monotonic() - began:.1f} s; "
            "starting capture and apply ..."
        )
        running.enter_context(_showing_logs(out, folder / "logs"))
        running.enter_context(stages)
        start_stages(stages, config)
        proofs = _live_and_prove(config, stages, out, stop, seconds=seconds, seed=seed, began=began)
        _print(out, proofs)
        if not all(proof.equal for proof in proofs):
            raise NotEqual("DuckDB does not hold what Postgres holds.")
        out.print(
            f"equal: every table, every row, every value, after {time.monotonic() - began:.1f} s", style="bold green"
        )
        if keep is not None:
            out.print(f"kept: {folder}")


def _live_and_prove(
    config: Config,
    stages: Stages,
    out: Console,
    stop: threading.Event,
    *,
    seconds: float | None,
    seed: int,
    began: float,
) -> list[TableProof]:
    lake = Path(config.destinations[LAKE].options["path"])
    with (
        connect(config.source) as source,
        KafkaLog(config.kafka) as log,
        Workload(config.source.dsn.get_secret_value(), seed) as workload,
    ):
        observer = Observer(config, LAKE, lake, source=source, log=log, began=began)
        with viewing(out, observer, LAKE) as view:
            until = time.monotonic() + seconds if seconds is not None else float("inf")
            while time.monotonic() < until and not stop.wait(_LOOK_SECONDS):
                _look(stages, workload, view, "the shop lives")
            workload.stop()
            row = source.execute("select pg_current_wal_lsn()::text as lsn").fetchone()
            assert row is not None  # noqa: S101 -- a select without from has one row
            wait_until_there(
                log,
                config.pipeline,
                LAKE,
                Lsn.parse(row["lsn"]),
                _CATCH_UP_SECONDS,
                held=Held.RAISED,
                tables=shop.TABLES,
                between=lambda: _look(stages, workload, view, "writing has stopped, DuckDB catches up"),
            )
        return prove(source, lake, shop.TABLES)


def _look(stages: Stages, workload: Workload, view: View, doing: str) -> None:
    stages.check()
    workload.check()
    view.show(doing, workload.happened.copy())


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """The folder that was asked for, else one that is gone at the end, `kill -9` included."""
    if keep is not None:
        keep = keep.absolute()
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise ConfigError(f"{keep} is not empty.", solution="Give --keep a new folder.")
        yield keep
        return
    throw_away = ServerProcess("demo", None)
    try:
        yield throw_away.directory
    finally:
        throw_away.close()


def _environment() -> Mapping[str, str]:
    """Ours, without overrides that are meant for another pipeline."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX) or name in RESERVED}
    return kept | {LOG_FORMAT: LogFormat.TEXT.value}


def _open_shop(stack: LocalStack, folder: Path, seed: int) -> Config:
    """The database, its tables and first rows, and the configuration of a pipeline from it to DuckDB."""
    with psycopg.connect(stack.postgres.dsn(), autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(shop.DATABASE)))
    dsn = stack.postgres.dsn(shop.DATABASE)
    with psycopg.connect(dsn, autocommit=True) as connection:
        shop.create(connection, random.Random(seed))  # noqa: S311 -- the same seed, the same shop
    path = folder / "penstock.toml"
    path.touch(mode=0o600)
    path.write_text(
        f"""\
[pipeline]
name = "shop"

[source]
dsn = {json.dumps(dsn)}
publication = "{shop.PUBLICATION}"

[kafka]
bootstrap_servers = "{stack.kafka.bootstrap_servers}"

[destinations.{LAKE}]
type = "duckdb"
path = "shop.duckdb"
""",
        encoding="utf-8",
    )
    return load(path, environment={})


@contextmanager
def _showing_logs(out: Console, folder: Path) -> Iterator[None]:
    """When something goes wrong, the last lines of every stage's log are shown: the folder may be gone soon."""
    try:
        yield
    except PenstockError:
        for log in sorted(folder.glob("*.log")):
            out.print(f"--- the last lines of {log.name}", style="dim")
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
            sys.stdout.write("".join(f"{line}\n" for line in lines))
        raise


def _print(out: Console, proofs: list[TableProof]) -> None:
    right = ["rows at source", "rows in DuckDB", "only at source", "only in DuckDB"]
    shown = table("table", *right, "", right=right)
    for proof in proofs:
        shown.add_row(
            str(proof.table),
            f"{proof.source_rows:,}",
            "no table" if proof.destination_rows is None else f"{proof.destination_rows:,}",
            f"{proof.only_at_source:,}",
            f"{proof.only_at_destination:,}",
            "[green]equal[/]" if proof.equal else "[red]DIFFERENT[/]",
        )
    out.print(shown)
