"""What capture is told: the source, the topics, and when to let go of WAL."""

from __future__ import annotations

import enum
from datetime import timedelta

from pydantic import BaseModel, ByteSize, Field, SecretStr

from schemas.acknowledge import AcknowledgeConfig
from schemas.connections import KafkaConfig
from schemas.identifiers import DestinationName, PipelineName, PublicationName


class PartialPublish(enum.Enum):
    """What to do when a publication withholds some operations."""

    REFUSE = "refuse"
    ALLOW = "allow"


class Origins(enum.Enum):
    """Whose transactions are streamed."""

    ANY = "any"
    NONE = "none"


class Failover(enum.Enum):
    """Whether the slot outlives its server."""

    NONE = "none"
    SLOT = "slot"


class SourceConfig(BaseModel, frozen=True, extra="forbid"):
    """The database whose changes are captured."""

    dsn: SecretStr = Field(description="How to reach Postgres: a URL or key=value pairs, as libpq takes them.")
    publication: PublicationName = Field(description="The publication that lists the tables.")
    tables: tuple[str, ...] = Field(
        default=(),
        description="Patterns of the tables, as `schema.table` with `*` and `?`; `!` before one takes tables away. "
        "Given: penstock makes the publication, and adds and drops its tables. The role must own them.",
    )
    partial_publish: PartialPublish = Field(
        default=PartialPublish.REFUSE,
        description="What to do with a publication that withholds inserts, updates, deletes or truncates. `refuse`: "
        "stop with the reason, for destinations would drift away from the source. `allow`: they get what is published.",
    )
    origin: Origins = Field(
        default=Origins.ANY,
        description="`any`: all transactions are streamed. `none`: only those that began at this server; what was "
        "replicated to it from another one is left out, so that databases that feed each other make no loop (Postgres "
        "16 and newer). A copy has every row, wherever it came from.",
    )
    failover: Failover = Field(
        default=Failover.NONE,
        description="`slot`: standbys may keep the slot in step, and a promoted one goes on where the primary ended "
        "(Postgres 17 and newer). `none`: the slot is left as it is, a new one lives on this server only.",
    )


class OnLostSlot(enum.Enum):
    """What to do when WAL that is still needed is gone."""

    FAIL = "fail"
    RESYNC = "resync"


class CaptureTuning(BaseModel, frozen=True, extra="forbid"):
    """How capture works; the defaults fit most."""

    copy_workers: int = Field(
        default=2, ge=1, description="Ranges of tables copied at the same time, each by a process with its own session."
    )
    copy_ranges_per_table: int = Field(
        default=64, ge=1, le=100_000, description="Most ranges of blocks that a table, or its leaves, are divided into."
    )
    copy_range_size: ByteSize = Field(
        default=ByteSize(32 * 1024**2), ge=8192, description="A table is not divided into ranges smaller than this."
    )
    checkpoint_interval: timedelta = Field(
        default=timedelta(milliseconds=500), description="Longest time between two checkpoints while changes flow."
    )
    checkpoint_rows: int = Field(
        default=100_000, ge=1, description="Most rows between two checkpoints, if commits allow."
    )
    idle_interval: timedelta = Field(
        default=timedelta(seconds=2), description="Time between two checkpoints while nothing is published."
    )
    status_interval: timedelta = Field(
        default=timedelta(seconds=5),
        description="Longest time between two status updates; never more than a third of wal_sender_timeout.",
    )
    publication_interval: timedelta = Field(
        default=timedelta(seconds=3), description="How often the publication is looked at for new and removed tables."
    )
    producer_memory: ByteSize = Field(
        default=ByteSize(64 * 1024**2), description="Bytes waiting to be sent to Kafka before capture stops reading."
    )
    on_lost_slot: OnLostSlot = Field(
        default=OnLostSlot.FAIL,
        description="`fail`: stop with the reason. `resync`: make a new slot and copy every table again.",
    )
    metrics_port: int | None = Field(default=None, description="Serve Prometheus metrics there. Left out: not served.")


class CaptureConfig(BaseModel, frozen=True, extra="forbid"):
    """All that capture knows of the outside; built by the console from penstock.toml."""

    pipeline: PipelineName
    source: SourceConfig
    kafka: KafkaConfig
    acknowledge: AcknowledgeConfig = AcknowledgeConfig()
    tuning: CaptureTuning = CaptureTuning()
    destinations: tuple[DestinationName, ...] = Field(
        default=(), description="Whose feedback the policies `destinations` and `bounded` wait for."
    )
    state_path: str = Field(description="The SQLite file of capture's store.")
