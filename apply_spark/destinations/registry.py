"""Destinations are found by entry point, so that third parties add theirs without touching this package."""

from __future__ import annotations

import difflib
from importlib.metadata import entry_points
from typing import Any

from apply_spark.config import DestinationConfig
from apply_spark.destination import Connector, Destination
from apply_spark.errors import DestinationNotInstalled
from schemas.errors import ConfigError
from schemas.identifiers import DestinationName

GROUP = "penstock.destinations"


def installed() -> dict[str, Any]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def make_destination(name: DestinationName, config: DestinationConfig) -> Destination:
    """Builds `[destinations.NAME]`; the destination itself refuses options that it does not know."""
    destination: Destination = _class(name, config)(name, config.options)
    return destination


def connector(name: DestinationName, config: DestinationConfig) -> Connector | None:
    """What Spark needs for it. None: Spark does not write there."""
    needed: Connector | None = getattr(_class(name, config), "connector", None)
    return needed


def _class(name: DestinationName, config: DestinationConfig) -> Any:  # noqa: ANN401 -- whatever the entry point names
    known = installed()
    if config.type not in known:
        close = difflib.get_close_matches(config.type, known, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ConfigError(
            f"destinations.{name}.type is {config.type!r}; no such destination is installed.{hint}",
            solution=f"Use one of: {', '.join(sorted(known))}; or install the package that brings it.",
        )
    try:
        return known[config.type].load()
    except ModuleNotFoundError as error:
        raise DestinationNotInstalled(
            f"Destination {config.type!r} is known but not installed: Python finds no module {error.name}.",
            solution=f"Run `pip install '{known[config.type].dist.name}[{config.type}]'`.",
        ) from error
