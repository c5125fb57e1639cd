"""`penstock apply`: stage two, from Kafka to one destination."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from console.commands.options import ConfigFile, DestinationOption, ParentPipe
from console.config import DEFAULT_FILE, load
from console.environment import forget_settings
from console.metrics_server import serving_metrics
from console.stages import running_as_stage


def apply(
    *, config: ConfigFile = DEFAULT_FILE, destination: DestinationOption = None, parent_pipe: ParentPipe = None
) -> None:
    """Carry the changes from Kafka to a destination, until it is told to stop."""
    with running_as_stage(parent_pipe) as stop:
        pipeline = load(config)
        forget_settings(os.environ)
        name = pipeline.live_destination_named(destination)

        from apply_spark.destinations.registry import connector  # noqa: PLC0415 -- `penstock --help` stays fast
        from apply_spark.run import run_apply  # noqa: PLC0415
        from console.local_stack.spark import spark_runtime  # noqa: PLC0415

        settings = pipeline.apply_config(name, spark_runtime(connector(name, pipeline.destinations[name])))
        # In the main thread Spark would put its own SIGINT handler in the place of ours.
        with (
            serving_metrics(settings.tuning.metrics_port, "apply.metrics_port"),
            ThreadPoolExecutor(1, thread_name_prefix="apply") as thread,
        ):
            thread.submit(run_apply, settings, stop).result()
