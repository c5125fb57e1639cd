"""penstock.toml and the environment in, one frozen configuration out. The only place that reads either.

Promised: every mistake is reported in one go, by key; no value is repeated, because a value may be a secret; a key that
nobody knows is refused, in the file and in the environment.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from apply_spark.config import ApplyConfig, ApplyTuning, DestinationConfig, Ends, FilledBy, SparkRuntime
from capture.config import (
    AdoptConfig,
    AdoptSection,
    CaptureConfig,
    CaptureTuning,
    CopiesConfig,
    CopyMode,
    SourceConfig,
)
from console.embedded_broker import running_broker
from console.environment import Variable, overrides
from schemas.acknowledge import AcknowledgeConfig
from schemas.connections import KafkaConfig
from schemas.errors import ConfigError
from schemas.identifiers import DestinationName, PipelineName, pipeline_name
from schemas.settings import closest, explain, printable, with_durations

DEFAULT_FILE = Path("penstock.toml")
DESTINATIONS_GROUP = "penstock.destinations"
_DESTINATION = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
_EXAMPLE = """\
[pipeline]
name = "shop"

[source]
dsn = "postgresql://postgres@localhost:5432/shop"
publication = "shop_pub"

[destinations.lake]
type = "duckdb"
path = "shop.duckdb"
"""


def _destination_name(text: str) -> DestinationName:
    if _DESTINATION.fullmatch(text) is None:
        raise ValueError("a destination's name is a letter, then at most 39 letters, digits, underscores or hyphens")
    return DestinationName(text)


class PipelineSection(BaseModel, frozen=True, extra="forbid"):
    """What the pipeline is called."""

    name: Annotated[PipelineName, AfterValidator(pipeline_name)] = Field(
        description="Part of the slot's and of every topic's name: a lower-case letter, then letters, digits, `_`."
    )


def _usable_path(path: Path) -> Path:
    """From the root on where it begins with a home folder."""
    if "\0" in str(path):
        raise ValueError("a path has no character 0")
    try:
        return path.expanduser()
    except RuntimeError:
        raise ValueError("there is no such user whose home folder could be meant") from None


class StateSection(BaseModel, frozen=True, extra="forbid"):
    """Where capture keeps what it remembers."""

    path: Annotated[Path | None, AfterValidator(lambda path: path and _usable_path(path))] = Field(
        default=None,
        description="A SQLite file. Left out: `.penstock/<pipeline>.sqlite` beside the configuration file.",
    )


class PenstockToml(BaseModel, frozen=True, extra="forbid"):
    """The file, section by section."""

    pipeline: PipelineSection
    source: SourceConfig | None = Field(default=None, description="Needed, unless there is `[adopt]` in its place.")
    adopt: AdoptSection | None = Field(default=None, description="In the place of `[source]`.")
    kafka: KafkaConfig | None = Field(
        default=None, description="Leave the section out: `penstock run` then starts an embedded broker."
    )
    acknowledge: AcknowledgeConfig = AcknowledgeConfig()
    copies: CopiesConfig = CopiesConfig()
    capture: CaptureTuning = CaptureTuning()
    apply: ApplyTuning = ApplyTuning()
    state: StateSection = StateSection()
    destinations: dict[Annotated[str, AfterValidator(_destination_name)], DestinationConfig] = Field(
        default={}, description="One section each; further keys belong to the destination."
    )


@dataclass(frozen=True, repr=False)
class Config:
    """One pipeline, as its file and the environment describe it."""

    path: Path
    settings: PenstockToml

    def __repr__(self) -> str:
        return f"Config({str(self.path)!r}, pipeline={self.pipeline!r})"

    @property
    def pipeline(self) -> PipelineName:
        return self.settings.pipeline.name

    @property
    def source(self) -> SourceConfig:
        if self.settings.source is None:
            raise ConfigError(
                f"{self.path} has no [source]: its topics are adopted from Debezium.",
                solution="Run `penstock adopt` and `penstock apply`, or `penstock run` for both; what asks Postgres "
                "itself needs a pipeline with a [source].",
            )
        return self.settings.source

    @property
    def destinations(self) -> dict[DestinationName, DestinationConfig]:
        return {DestinationName(name): config for name, config in self.settings.destinations.items()}

    @property
    def live_destinations(self) -> tuple[DestinationName, ...]:
        """Those that apply keeps level with the source: the ones that `run` starts and capture waits for."""
        return tuple(name for name, each in self.destinations.items() if each.filled_by is FilledBy.APPLY)

    @property
    def folder(self) -> Path:
        """Where penstock keeps its own files: `.penstock` beside the configuration file."""
        return self.path.parent / ".penstock"

    @property
    def broker_file(self) -> Path:
        """Where the embedded broker says how it is reached, while it runs."""
        return self.folder / "broker.json"

    @cached_property
    def kafka(self) -> KafkaConfig:
        """The broker that the file names, else the embedded one that runs now."""
        if self.settings.kafka is not None:
            return self.settings.kafka
        servers = running_broker(self.broker_file)
        if servers is None:
            raise ConfigError(
                f"{self.path} has no [kafka], and no embedded broker runs for it.",
                solution=f"Start `penstock run -c {self.path}`, which brings a broker, or name one: "
                '[kafka] bootstrap_servers = "host:9092".',
            )
        return KafkaConfig(bootstrap_servers=servers)

    def capture_config(self) -> CaptureConfig:
        state = self.settings.state.path or self.folder / f"{self.pipeline}.sqlite"
        return CaptureConfig(
            pipeline=self.pipeline,
            source=self.source,
            kafka=self.kafka,
            acknowledge=self.settings.acknowledge,
            copies=self.settings.copies,
            tuning=self.settings.capture,
            destinations=self.live_destinations,
            state_path=str(self.path.parent / state),
        )

    def adopt_config(self) -> AdoptConfig:
        if self.settings.adopt is None:
            raise ConfigError(
                f"{self.path} has no [adopt].",
                solution="Run `penstock capture`; or give [adopt], with topics and schema_registry, for [source].",
            )
        return AdoptConfig(
            pipeline=self.pipeline, kafka=self.kafka, adopt=self.settings.adopt, tuning=self.settings.capture
        )

    def apply_config(self, name: DestinationName, runtime: SparkRuntime) -> ApplyConfig:
        return ApplyConfig(
            pipeline=self.pipeline,
            name=name,
            destination=self.destinations[name],
            kafka=self.kafka,
            tuning=self.settings.apply,
            ends=Ends.WHEN_COMPLETE if self.settings.copies.mode is CopyMode.COPY_ONLY else Ends.WHEN_TOLD,
            runtime=runtime,
        )

    def live_destination_named(self, name: str | None) -> DestinationName:
        """The same, of those that apply fills."""
        if name is None and len(self.live_destinations) == 1:
            return self.live_destinations[0]
        found = self.destination_named(name)
        if found not in self.live_destinations:
            raise ConfigError(
                f"destinations.{found} is filled by replay, and is not kept level with the source.",
                solution=f"Run `penstock replay --destination {found}`; or take `filled_by` out of its section, which "
                "makes it a live destination for good.",
            )
        return found

    def destination_named(self, name: str | None) -> DestinationName:
        """The destination of that name; without a name, the only one there is."""
        known = list(self.destinations)
        if name is None and len(known) == 1:
            return known[0]
        if name is None:
            raise ConfigError(
                f"{self.path} has {len(known)} destinations.",
                solution=f"Say which: --destination NAME, one of {', '.join(known)}."
                if known
                else 'Add one, such as [destinations.lake] type = "duckdb", path = "shop.duckdb".',
            )
        if name not in known:
            near = closest(name, [str(destination) for destination in known])
            raise ConfigError(
                f"{self.path} has no destination {name}{f'; did you mean {near}?' if near else '.'}",
                solution=f"Add [destinations.{name}] to the file, or name one of: {', '.join(known) or 'none yet'}.",
            )
        return DestinationName(name)


def load(path: Path, environment: Mapping[str, str] | None = None) -> Config:
    """Read a configuration. Raises ConfigError with every mistake there is."""
    path = path.absolute()
    try:
        return _loaded(path, os.environ if environment is None else environment)
    except RecursionError:
        raise ConfigError(
            f"{path} is nested deeper than any configuration is.", solution="Take the nested values out."
        ) from None


def _loaded(path: Path, environment: Mapping[str, str]) -> Config:
    data = _read_toml(path)
    changed = overrides(environment, PenstockToml, data)
    mistakes = list(changed.mistakes)
    settings: PenstockToml | None = None
    try:
        settings = PenstockToml.model_validate(with_durations(changed.data, PenstockToml))
    except ValidationError as error:
        mistakes += _named(explain(error, PenstockToml, ""), changed.variables)
    mistakes += _sources(changed.data)
    mistakes += _unknown_types(changed.data.get("destinations"))
    if mistakes or settings is None:
        raise ConfigError(_reason(path, mistakes), solution=_solution(path, mistakes))
    return Config(path, _beside(settings, path))


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        indented = "".join(f"    {line}\n" if line else "\n" for line in _EXAMPLE.splitlines())
        raise ConfigError(
            f"There is no configuration file {path}.", solution=f"Write it, for example:\n\n{indented}"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}.", solution="Give a file that this user may read: -c FILE."
        ) from error
    except tomllib.TOMLDecodeError as error:
        # Its message has line and column, and at most one character of the text.
        raise ConfigError(f"{path} is not TOML: {error}.", solution="Correct that line.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 at byte {error.start}.", solution="Save the file as UTF-8.") from None
    except ValueError:  # Python reads no number of more than 4300 digits
        raise ConfigError(f"{path} has a number that is too long.", solution="Write a smaller number.") from None


def _named(lines: list[str], variables: tuple[Variable, ...]) -> list[str]:
    """A mistake in a value that came from the environment is told with the variable's name."""
    named = []
    for line in lines:
        causes = [each.name for each in variables if re.search(rf"(?<![\w.]){re.escape(each.key)}(?![\w.])", line)]
        named.append(f"{line} (set by {causes[0]})" if causes else line)
    return named


def _sources(data: Mapping[str, Any]) -> list[str]:
    given = [section for section in ("source", "adopt") if section in data]
    if not given:
        return ["missing key source"]
    return ["source, adopt: one pipeline has one of them"] if len(given) > 1 else []


def _unknown_types(destinations: object) -> list[str]:
    """Mistakes in the `type` of a destination: what is installed is known without importing it."""
    installed = [entry.name for entry in entry_points(group=DESTINATIONS_GROUP)]
    if not isinstance(destinations, Mapping) or not installed:
        return []
    mistakes = []
    for name, section in destinations.items():
        wanted = section.get("type") if isinstance(section, Mapping) else None
        if isinstance(wanted, str) and wanted not in installed:
            near = closest(wanted, installed)
            hint = f"did you mean {near}?" if near else f"installed are {', '.join(sorted(installed))}"
            told = f"destinations.{name}.type: no destination of the type {wanted} is installed; {hint}"
            mistakes.append(printable(told))
    return mistakes


def _reason(path: Path, mistakes: list[str]) -> str:
    if len(mistakes) == 1:
        return f"{path}: {mistakes[0]}"
    return "\n".join([f"{path} has {len(mistakes)} mistakes:", *(f"  - {mistake}" for mistake in mistakes)])


def _solution(path: Path, mistakes: list[str]) -> str:
    from_environment = any("PENSTOCK_" in mistake for mistake in mistakes)
    place = f"{path} and the variables" if from_environment else str(path)
    return f"Correct {place}; docs/reference/config.md lists every key."


def _beside(settings: PenstockToml, file: Path) -> PenstockToml:
    """Files named by a relative `path` lie beside the configuration file, wherever a command is called."""
    destinations = {}
    for name, destination in settings.destinations.items():
        path = destination.options.get("path")
        update: dict[str, str] = {}
        if isinstance(path, str) and path and "://" not in path and not path.startswith(":"):
            try:
                update = {"path": str(file.parent / _usable_path(Path(path)))}
            except ValueError as error:
                mistakes = [f"destinations.{name}.path: {error}"]
                raise ConfigError(_reason(file, mistakes), solution=_solution(file, mistakes)) from None
        destinations[name] = DestinationConfig.model_validate(destination.model_dump() | update)
    return settings.model_copy(update={"destinations": destinations})
