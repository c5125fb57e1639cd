"""Destinations are found by entry point, so that third parties add theirs without touching this package."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points

from apply_spark.config import DestinationConfig, Mode
from apply_spark.destination import APPENDED_MODES, Connector, Destination
from apply_spark.errors import DestinationNotInstalled
from schemas.errors import ConfigError
from schemas.identifiers import DestinationName
from schemas.settings import closest

GROUP = "penstock.destinations"


def installed() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def make_destination(name: DestinationName, config: DestinationConfig) -> Destination:
    """Builds `[destinations.NAME]`; the destination itself refuses options that it does not know."""
    entry = _entry(name, config)
    try:
        with _told(entry):
            destination: Destination = entry.load()(name, config.options)
    except ConfigError as error:
        near = [(key, closest(key, list(type(config).model_fields))) for key in config.options]
        hints = [f"{key}: did you mean {meant}?" for key, meant in near if meant is not None and key in error.reason]
        if hints:
            raise ConfigError("; ".join([error.reason, *hints]), solution=error.solution) from None
        raise
    _require_mode(name, config, destination)
    return destination


def connector(name: DestinationName, config: DestinationConfig) -> Connector | None:
    """What Spark needs for it. None: Spark does not write there."""
    entry = _entry(name, config)
    with _told(entry):
        needed: Connector | None = getattr(entry.load(), "connector", None)
    return needed


def _require_mode(name: DestinationName, config: DestinationConfig, destination: Destination) -> None:
    modes: frozenset[Mode] = getattr(destination, "modes", APPENDED_MODES)
    if config.mode not in modes:
        known = ", ".join(mode.value for mode in Mode if mode in modes)
        raise ConfigError(
            f'destinations.{name}.mode is "{config.mode.value}", which type "{config.type}" does not have.',
            solution=f"Use one of: {known}; or another type of destination.",
        )


def _entry(name: DestinationName, config: DestinationConfig) -> EntryPoint:
    known = installed()
    if config.type not in known:
        close = difflib.get_close_matches(config.type, known, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ConfigError(
            f"destinations.{name}.type is {config.type!r}; no such destination is installed.{hint}",
            solution=f"Use one of: {', '.join(sorted(known))}; or install the package that brings it.",
        )
    return known[config.type]


@contextmanager
def _told(entry: EntryPoint) -> Iterator[None]:
    """A module that is missing, by the command that brings it: the extra of the destination's package that is called
    like the destination, else the module itself."""
    try:
        yield
    except ModuleNotFoundError as error:
        extras = entry.dist.metadata.get_all("Provides-Extra") if entry.dist is not None else None
        bringing = f"{entry.dist.name}[{entry.name}]" if entry.dist and entry.name in (extras or ()) else error.name
        raise DestinationNotInstalled(
            f"Destination {entry.name!r} is known but not installed: module {error.name} is missing.",
            solution=f"Run `pip install '{bringing}'`.",
        ) from error
