"""`penstock run`: capture and every destination on this host, with an embedded broker where none is named."""

from __future__ import annotations

import os
from contextlib import ExitStack

import structlog

from capture.config import CopyMode
from console.commands.options import ConfigFile
from console.config import DEFAULT_FILE, Config, load
from console.embedded_broker import embedded_broker
from console.environment import LOG_FORMAT, log_format
from console.signals import stop_on_signals
from console.stages import Stages
from schemas.errors import ConfigError

log = structlog.get_logger(__name__)


def run(*, config: ConfigFile = DEFAULT_FILE) -> None:
    """Run capture and every destination in one go; when one fails, all end."""
    pipeline = load(config)
    if pipeline.settings.copies.mode is CopyMode.COPY_ONLY:
        raise ConfigError(
            f'{pipeline.path} says copies.mode = "copy only": capture ends by itself, and would end all others.',
            solution="Run `penstock capture` and, beside it, `penstock apply`: both end when all is copied.",
        )
    stages = Stages(os.environ | {LOG_FORMAT: log_format(os.environ).value})
    with stop_on_signals(at_once=stages.kill) as stop, ExitStack() as running:
        if pipeline.settings.kafka is None:
            servers = running.enter_context(embedded_broker(pipeline.broker_file))
            log.info("embedded broker started", bootstrap_servers=servers)
        running.enter_context(stages)
        start_stages(stages, pipeline)
        stages.watch(stop)


def start_stages(stages: Stages, pipeline: Config) -> None:
    """Capture, or adopt, and one apply for each destination, each as it would be started on a host of its own."""
    first = "capture" if pipeline.settings.adopt is None else "adopt"
    stages.start(first, [first, "--config", str(pipeline.path)])
    for name in pipeline.live_destinations:
        stages.start(f"apply {name}", ["apply", "--config", str(pipeline.path), "--destination", name])
