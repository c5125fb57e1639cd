"""`penstock capture`: stage one, from Postgres to Kafka."""

from __future__ import annotations

from pathlib import Path

from console.commands.options import ConfigFile, ParentPipe
from console.config import DEFAULT_FILE, load
from console.metrics_server import serving_metrics
from console.stages import running_as_stage

_OWNER_ONLY = 0o700


def capture(*, config: ConfigFile = DEFAULT_FILE, parent_pipe: ParentPipe = None) -> None:
    """Carry the changes of Postgres to Kafka, until it is told to stop."""
    from capture.run import run_capture  # noqa: PLC0415 -- `penstock --help` stays fast
    from capture.table_sync.nursery import Nursery  # noqa: PLC0415 -- likewise

    with Nursery() as nursery, running_as_stage(parent_pipe) as stop:
        settings = load(config).capture_config()
        Path(settings.state_path).parent.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
        with serving_metrics(settings.tuning.metrics_port, "capture.metrics_port"):
            run_capture(settings, nursery, stop)
