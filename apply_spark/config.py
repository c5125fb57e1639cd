"""What apply is told: the topics, one destination, and how much to take at once."""

from __future__ import annotations

import enum
from datetime import timedelta
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ByteSize, Field, SecretStr, model_validator

from schemas.connections import KafkaConfig
from schemas.identifiers import OWN_SCHEMA, DestinationName, PipelineName, TableName
from schemas.patterns import matching


class FilledBy(enum.Enum):
    """Who writes to a destination."""

    APPLY = "apply"
    REPLAY = "replay"


class Treatment(enum.Enum):
    """What a destination shows of a column, from all of it to nothing."""

    SHOW = "show"
    HASH = "hash"
    NULL = "null"
    DROP = "drop"


class Mode(enum.Enum):
    """What a destination keeps of a table."""

    MIRROR = "mirror"
    SOFT_DELETE = "soft_delete"
    HISTORY = "history"
    LOG = "log"


class OnNewShape(enum.Enum):
    """What a destination does about a table whose columns are others than before."""

    EVOLVE = "evolve"
    FREEZE = "freeze"
    IGNORE = "ignore"


_COLUMN_DOTS = 2


def _column_pattern(text: str) -> str:
    if text.count(".") < _COLUMN_DOTS:
        raise ValueError("a column is named schema.table.column, with * and ? where it may be any: *.*.email")
    return text


def _chosen(patterns: tuple[str, ...]) -> tuple[str, ...]:
    if all(pattern.startswith("!") for pattern in patterns):
        raise ValueError('no pattern names a table; begin with "*" where all but some are wanted')
    return patterns


class DestinationConfig(BaseModel, frozen=True, extra="allow"):
    """One `[destinations.NAME]`: `type` chooses the destination, the keys below are for every type, all others are that
    destination's own."""

    type: str = Field(
        description="`clickhouse`, `delta`, `duckdb`, `ducklake`, `iceberg`, `memory`, `parquet`, `postgres`, "
        "`stdout`, or the name of an installed one."
    )
    filled_by: FilledBy = Field(
        default=FilledBy.APPLY,
        description="`apply`: kept level with the source. `replay`: filled by `penstock replay` and left as it is; "
        "`penstock run` starts no apply for it, and capture never waits for it.",
    )
    mode: Mode = Field(
        default=Mode.MIRROR,
        description="What it keeps of a table. `mirror`: the rows that the source has. `soft_delete`: rows that are "
        "deleted stay, marked. `history`: every version of a row, with when it was true. `log`: every change, one row "
        "each. Not every type has [all of them](destinations.md#modes). Another mode fills every table anew.",
    )
    tables: Annotated[tuple[str, ...], AfterValidator(_chosen)] = Field(
        default=("*",),
        description="Patterns of the tables that it has, as `schema.table` with `*` and `?`; `!` before one takes "
        'tables away: `["*", "!public.audit"]`. The others are not read.',
    )
    rename: dict[str, str] = Field(
        default={},
        description='What schemas and tables are called there: `"public" = "shop"`, `"public.orders" = "shop.sales"`. '
        "A table's own line goes before that of its schema.",
    )
    columns: dict[Annotated[str, AfterValidator(_column_pattern)], Treatment] = Field(
        default={},
        description='What is shown of columns: `"public.customers.email" = "hash"` (SHA-256 of its text), `"null"` '
        '(the column without its values), `"drop"`, `"show"`. With `*` and `?`: `"*.*.email"`. A full name goes before '
        "patterns; of several patterns, the one that shows least.",
    )
    salt: SecretStr | None = Field(
        default=None,
        min_length=1,
        description="A secret. Given: `hash` is HMAC-SHA-256 with it as the key, which nobody can try out without it.",
    )
    on_new_shape: OnNewShape = Field(
        default=OnNewShape.EVOLVE,
        description="When a table's columns change. `evolve`: the mirror follows. `freeze`: the table stops, until "
        "this is changed and `penstock rollback TABLE` lets it go on. `ignore`: the mirror keeps its columns.",
    )
    on_new_shape_of: dict[str, OnNewShape] = Field(
        default={}, description="The same for single tables, by pattern; the first that fits counts."
    )

    @model_validator(mode="after")
    def _names_are_of_one_kind(self) -> Self:
        for old, new in self.rename.items():
            if ("." in old) != ("." in new):
                raise ValueError(f"rename: {old} and what it becomes must both be schemas, or both be schema.table")
            if not all(part for part in new.split(".", 1)):
                raise ValueError(f"rename: {old} becomes a name without letters")
            if new.split(".", 1)[0].lower() == OWN_SCHEMA:
                raise ValueError(f"rename: {old} cannot go to the schema {OWN_SCHEMA}, which is penstock's own")
        return self

    def selects(self, table: TableName) -> bool:
        return bool(matching([table], self.tables))

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

    master: str = Field(
        default="local[*]",
        description="Spark master: this process, or a cluster (`spark://HOST:PORT`, `yarn`, `k8s://...`).",
    )
    driver_memory: str = Field(default="2g", description="Heap of the Spark driver.")
    interval_rows: int = Field(default=200_000, ge=1, description="Checkpoints are joined up to this many rows.")
    interval_bytes: ByteSize = Field(
        default=ByteSize(256 * 1024**2), description="Checkpoints are joined up to this many bytes."
    )
    trigger_interval: timedelta = Field(
        default=timedelta(milliseconds=200),
        ge=timedelta(0),
        le=timedelta(days=1),
        description="How often new checkpoints are looked for.",
    )
    progress_interval: timedelta = Field(
        default=timedelta(seconds=30),
        ge=timedelta(0),
        description="How often progress is stored while nothing is written.",
    )
    retry_first: timedelta = Field(
        default=timedelta(seconds=10),
        gt=timedelta(0),
        description="How long a table waits that is held by an error which time may heal. Doubled with each failure.",
    )
    retry_most: timedelta = Field(
        default=timedelta(minutes=10), gt=timedelta(0), description="How long such a table waits at most."
    )
    spark: dict[str, str] = Field(default={}, description="Further Spark settings.", repr=False)
    metrics_port: int | None = Field(
        default=None, ge=1, le=65_535, description="Serve Prometheus metrics there. Left out: not served."
    )


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
