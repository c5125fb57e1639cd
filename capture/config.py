"""What capture is told: the source, the topics, and when to let go of WAL."""

from __future__ import annotations

import enum
from datetime import timedelta

from pydantic import BaseModel, ByteSize, Field, SecretStr

from schemas.acknowledge import AcknowledgeConfig
from schemas.connections import KafkaConfig, RegistryAddress
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
    patience: timedelta = Field(
        default=timedelta(seconds=30),
        description="After how long a silence of Postgres it is asked, over another connection, whether it still works "
        "for capture. The stream itself goes by wal_sender_timeout.",
    )
    failover: Failover = Field(
        default=Failover.NONE,
        description="`slot`: standbys may keep the slot in step, and a promoted one goes on where the primary ended "
        "(Postgres 17 and newer). `none`: the slot is left as it is, a new one lives on this server only.",
    )


class CopyMode(enum.Enum):
    """What a pipeline carries: the rows that are there, the changes from now on, or both."""

    COPY_AND_STREAM = "copy and stream"
    COPY_ONLY = "copy only"
    STREAM_ONLY = "stream only"


class CopiesConfig(BaseModel, frozen=True, extra="forbid"):
    """Which tables are copied when they are first met."""

    mode: CopyMode = Field(
        default=CopyMode.COPY_AND_STREAM,
        description="`copy and stream`: the rows of a table, then its changes. `copy only`: capture ends, with exit "
        "code 0, once Kafka has every copy and the changes until then, and apply once the destination has them. "
        "`stream only`: no table is copied.",
    )
    tables: tuple[str, ...] = Field(
        default=("*",),
        description="Patterns of the tables that are copied, as `schema.table` with `*` and `?`; `!` before one takes "
        'tables away: `["*", "!public.log"]`. The others begin empty at the destination, and get the changes from '
        "the moment they are met.",
    )


class OnLostSlot(enum.Enum):
    """What to do when WAL that is still needed is gone."""

    FAIL = "fail"
    RESYNC = "resync"


class CaptureTuning(BaseModel, frozen=True, extra="forbid"):
    """How capture works; the defaults fit most."""

    copy_workers: int = Field(
        default=2,
        ge=1,
        le=1_000,
        description="Ranges of tables copied at the same time, each by a process with its own session.",
    )
    copy_ranges_per_table: int = Field(
        default=64, ge=1, le=100_000, description="Most ranges of blocks that a table, or its leaves, are divided into."
    )
    copy_range_size: ByteSize = Field(
        default=ByteSize(32 * 1024**2), ge=8192, description="A table is not divided into ranges smaller than this."
    )
    copy_max_rate: ByteSize | None = Field(
        default=None,
        ge=1024,
        description="Most bytes that all copies together write to Kafka in a second; each worker has an even share. "
        "Left out: as fast as it goes.",
    )
    checkpoint_interval: timedelta = Field(
        default=timedelta(milliseconds=500),
        gt=timedelta(0),
        description="Longest time between two checkpoints while changes flow.",
    )
    checkpoint_rows: int = Field(
        default=100_000, ge=1, description="Most rows between two checkpoints, if commits allow."
    )
    idle_interval: timedelta = Field(
        default=timedelta(seconds=2),
        gt=timedelta(0),
        description="Time between two checkpoints while nothing is published.",
    )
    status_interval: timedelta = Field(
        default=timedelta(seconds=5),
        gt=timedelta(0),
        description="Longest time between two status updates; never more than a third of wal_sender_timeout.",
    )
    publication_interval: timedelta = Field(
        default=timedelta(seconds=3),
        gt=timedelta(0),
        description="How often the publication is looked at for new and removed tables.",
    )
    producer_memory: ByteSize = Field(
        default=ByteSize(64 * 1024**2), description="Bytes waiting to be sent to Kafka before capture stops reading."
    )
    on_lost_slot: OnLostSlot = Field(
        default=OnLostSlot.FAIL,
        description="`fail`: stop with the reason. `resync`: make a new slot and copy every table again.",
    )
    metrics_port: int | None = Field(
        default=None, ge=1, le=65_535, description="Serve Prometheus metrics there. Left out: not served."
    )


class CaptureConfig(BaseModel, frozen=True, extra="forbid"):
    """All that capture knows of the outside; built by the console from penstock.toml."""

    pipeline: PipelineName
    source: SourceConfig
    kafka: KafkaConfig
    acknowledge: AcknowledgeConfig = AcknowledgeConfig()
    copies: CopiesConfig = CopiesConfig()
    tuning: CaptureTuning = CaptureTuning()
    destinations: tuple[DestinationName, ...] = Field(
        default=(), description="Whose feedback the policies `destinations` and `bounded` wait for."
    )
    state_path: str = Field(description="The SQLite file of capture's store.")


class MissingBeginning(enum.Enum):
    """What to do with a topic whose first records are gone."""

    REFUSE = "refuse"
    ACCEPT = "accept"


class AdoptSection(BaseModel, frozen=True, extra="forbid"):
    """Topics that Debezium writes, for `penstock adopt`."""

    topics: tuple[str, ...] = Field(
        min_length=1,
        description="Patterns of the topics of tables, with `*` and `?`: `shop.public.*`; `!` before one takes topics "
        "away.",
    )
    schema_registry: RegistryAddress = Field(
        description="The registry that the connector's converter uses, by Confluent's API, "
        "`https://USER:PASSWORD@HOST:PORT/PATH`."
    )
    unavailable_value: str = Field(
        default="__debezium_unavailable_value",
        description="The connector's `unavailable.value.placeholder`: what it writes for a TOASTed value that an "
        "update did not touch.",
    )
    missing_beginning: MissingBeginning = Field(
        default=MissingBeginning.REFUSE,
        description="What to do with a topic whose first records are gone, so that rows are missing that did not "
        "change since. `refuse`: its table is left out. `accept`: it is read from where it begins, and misses rows "
        "until the connector sends them once more.",
    )


class AdoptConfig(BaseModel, frozen=True, extra="forbid"):
    """All that adopt knows of the outside; built by the console from penstock.toml."""

    pipeline: PipelineName
    kafka: KafkaConfig
    adopt: AdoptSection
    tuning: CaptureTuning = CaptureTuning()
