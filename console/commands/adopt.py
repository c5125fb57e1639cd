"""`penstock adopt`: stage one where Debezium captures, from its topics to those of the pipeline."""

from __future__ import annotations

from console.commands.options import ConfigFile, ParentPipe
from console.config import DEFAULT_FILE, load
from console.metrics_server import serving_metrics
from console.stages import running_as_stage


def adopt(*, config: ConfigFile = DEFAULT_FILE, parent_pipe: ParentPipe = None) -> None:
    """Carry the changes from Debezium's topics to those of the pipeline, until it is told to stop."""
    from capture.adopt.run import run_adopt  # noqa: PLC0415 -- `penstock --help` stays fast

    with running_as_stage(parent_pipe) as stop:
        settings = load(config).adopt_config()
        with serving_metrics(settings.tuning.metrics_port, "capture.metrics_port"):
            run_adopt(settings, stop)
