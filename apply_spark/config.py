"""What apply is told: the topics, one destination, and how much to take at once."""

from __future__ import annotations

import enum
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ByteSize, Field

from schemas.connections import KafkaConfig
from schemas.identifiers import DestinationName, PipelineName


class FilledBy(enum.Enum):
    """Who writes to a destination."""

    APPLY = "apply"
    REPLAY = "replay"


class DestinationConfig(BaseModel, frozen=True, extra="allow"):
    """One `[destinations.NAME]`: `type` chooses the destination, the other keys are that destination's own."""

    type: str = Field(
        description="`clickhouse`, `delta`, `duckdb`, `ducklake`, `memory`, `parquet`, `postgres`, `stdout`, or the"
        " name of an installed one."
    )
    filled_by: FilledBy = Field(
        default=FilledBy.APPLY,
        description="`apply`: kept level with the source. `replay`: filled by `penstock replay` and left as it is; "
        "`penstock run` starts no apply for it, and capture never waits for it.",
    )

    def __repr__(self) -> str:
        """Without the options: they may hold a password."""
        return f"DestinationConfig(type={self.type!r})"

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Ends(enum.Enum):
    """When apply is done."""

    WHEN_TOLD = "when told"
    WHEN_COMPLETE = "when capture has copied every table, and all of it is applied"


class ApplyTuning(BaseModel, frozen=True, extra="forbid"):
    """How apply works; the defaults fit most."""

    master: str = Field(default="local[*]", description="Spark master.")
    driver_memory: str = Field(default="2g", description="Heap of the Spark driver.")
    interval_rows: int = Field(default=200_000, ge=1, description="Checkpoints are joined up to this many rows.")
    interval_bytes: ByteSize = Field(
        default=ByteSize(256 * 1024**2), description="Checkpoints are joined up to this many bytes."
    )
    trigger_interval: timedelta = Field(
        default=timedelta(milliseconds=200), description="How often new checkpoints are looked for."
    )
    progress_interval: timedelta = Field(
        default=timedelta(seconds=30), description="How often progress is stored while nothing is written."
    )
    retry_first: timedelta = Field(
        default=timedelta(seconds=10),
        gt=timedelta(0),
        description="How long a table waits that is held by an error which time may heal. Doubled with each failure.",
    )
    retry_most: timedelta = Field(
        default=timedelta(minutes=10), gt=timedelta(0), description="How long such a table waits at most."
    )
    spark: dict[str, str] = Field(default={}, description="Further Spark settings.")
    metrics_port: int | None = Field(default=None, description="Serve Prometheus metrics there. Left out: not served.")


class SparkRuntime(BaseModel, frozen=True, extra="forbid"):
    """What Spark is started with; found by the console."""

    jars: tuple[str, ...] = Field(
        default=(),
        description="Spark's connectors, as files: for Kafka, for Avro, for the destination.",
    )
    java_home: str | None = Field(default=None, description="The Java that Spark runs on, where not the machine's own.")
    java_options: str = Field(default="", description="For the driver's JVM, before those of `apply.spark`.")
    settings: dict[str, str] = Field(default={}, description="Spark settings of the destination's connector.")


class ApplyConfig(BaseModel, frozen=True, extra="forbid"):
    """All that apply knows of the outside; built by the console from penstock.toml."""

    pipeline: PipelineName
    name: DestinationName
    destination: DestinationConfig
    kafka: KafkaConfig
    tuning: ApplyTuning = ApplyTuning()
    ends: Ends = Ends.WHEN_TOLD
    runtime: SparkRuntime = SparkRuntime()
